//! Resumes a long export at its last checkpoint after its worker has stopped, and reports its progress as events.
//!
//! Run it with `cargo run -p heartline-examples --example checkpoint`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heartline::{App, Context, Event, JobError, TaskOptions};

const PAGES: u32 = 60;

/// Copies the pages that have not been copied yet. `copied` counts the pages of all runs.
async fn export(ctx: Context, copied: Arc<AtomicU32>) -> Result<u32, JobError> {
    let done = ctx.last_checkpoint::<u32>().await?.unwrap_or(0);
    println!("this run starts at page {done}");
    for page in done..PAGES {
        tokio::time::sleep(Duration::from_millis(50)).await; // the real work
        copied.fetch_add(1, Ordering::Relaxed);
        // Cheap enough for every step: the worker writes the latest one from time to time, and before it requeues the job.
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
    // On shutdown, the worker does not wait for the job.
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
    // Only the page that was being copied when the worker stopped may be copied twice.
    let copied = copied.load(Ordering::Relaxed);
    println!("both runs copied {copied} pages in total");
    assert!((PAGES..=PAGES + 1).contains(&copied));
    println!("the second worker stopped: {}", second.stop().await?);
    Ok(())
}
