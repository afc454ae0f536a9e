//! A long export whose worker is stopped half way. The next run goes on from its last checkpoint, and whoever waits sees how far it
//! has come.
//!
//! Run it with `cargo run -p heartline-examples --example checkpoint`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heartline::{App, Context, Event, JobError, TaskOptions};

const PAGES: u32 = 60;

/// Copies the pages that are not copied yet. `copied` counts what all runs did.
async fn export(ctx: Context, copied: Arc<AtomicU32>) -> Result<u32, JobError> {
    let done = ctx.last_checkpoint::<u32>().await?.unwrap_or(0);
    println!("a run begins at page {done}");
    for page in done..PAGES {
        tokio::time::sleep(Duration::from_millis(50)).await; // the hard work
        copied.fetch_add(1, Ordering::Relaxed);
        // Free to call at every step: the latest is written now and then, and before the job is handed back.
        ctx.checkpoint(&(page + 1))?;
        ctx.progress(&(100 * (page + 1) / PAGES), format!("page {page}"))?;
    }
    Ok(PAGES)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("checkpoint-{}", uuid::Uuid::now_v7())).build().await?;
    let copied = Arc::new(AtomicU32::new(0));
    // A worker that is told to stop does not wait for the job.
    let options = TaskOptions::new().shutdown_grace(Duration::ZERO).cancel_grace(Duration::from_millis(200));
    let count = Arc::clone(&copied);
    let exports = app.task("export", options, move |ctx, (): ()| export(ctx, Arc::clone(&count)))?;
    let mut events = app.events();

    let first = app.worker().spawn();
    let job = exports.dispatch(()).await?;
    loop {
        if let Event::Progress { value, message, .. } = events.recv().await? {
            println!("{value} %: {message}");
            if value.as_u64() >= Some(25) {
                break;
            }
        }
    }
    println!("the first worker stopped: {}", first.stop().await?);

    let second = app.worker().spawn();
    println!("exported {} pages", job.result().await?);
    // None twice but the one that was being copied when the worker stopped.
    let copied = copied.load(Ordering::Relaxed);
    println!("copied {copied} pages in both runs together");
    assert!((PAGES..=PAGES + 1).contains(&copied));
    println!("the second worker stopped: {}", second.stop().await?);
    Ok(())
}
