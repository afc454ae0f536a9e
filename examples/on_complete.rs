//! Sends a mail after each job, from a hook that receives the outcome. The first worker stops during a hook; the next
//! worker runs the hook again, but not the handler.
//!
//! Run it with `cargo run -p heartline-examples --example on_complete`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heartline::{App, Context, JobError, Outcome, TaskOptions};
use tokio::sync::Notify;

/// Counts the runs of handlers and hooks, and reports that a hook has begun.
#[derive(Default)]
struct Seen {
    handlers: AtomicU32,
    hooks: AtomicU32,
    hook_began: Notify,
}

async fn export(seen: Arc<Seen>, rows: u32) -> Result<u32, JobError> {
    seen.handlers.fetch_add(1, Ordering::Relaxed);
    if rows == 0 {
        return Err(JobError::new("there is nothing to export").fatal());
    }
    Ok(rows)
}

async fn send_mail(ctx: Context, outcome: Outcome<u32>, seen: Arc<Seen>) -> Result<(), JobError> {
    seen.hook_began.notify_one();
    // Hooks run at least once: a worker may die before the end of the hook is recorded. The job id identifies the mail.
    tokio::time::sleep(Duration::from_millis(300)).await;
    match outcome {
        Outcome::Completed(rows) => println!("mail {}: {rows} rows are ready", ctx.id()),
        Outcome::Failed(failure) => println!("mail {}: {failure}", ctx.id()),
        Outcome::Cancelled { reason } => println!("mail {}: cancelled, {reason}", ctx.id()),
    }
    seen.hooks.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("on-complete-{}", uuid::Uuid::now_v7())).build().await?;
    let seen = Arc::new(Seen::default());
    // On shutdown, the worker does not wait for the hook.
    let options = TaskOptions::new().shutdown_grace(Duration::ZERO).cancel_grace(Duration::from_millis(50));
    let of_handlers = Arc::clone(&seen);
    let exports = app.task("export", options, move |_: Context, rows| export(Arc::clone(&of_handlers), rows))?;
    let of_hooks = Arc::clone(&seen);
    exports.on_complete(move |ctx, outcome| send_mail(ctx, outcome, Arc::clone(&of_hooks)))?;

    let first = app.worker().spawn();
    let job = exports.dispatch(40).id("export-1").await?;
    seen.hook_began.notified().await;
    println!("the first worker stopped: {}; the job is {}", first.stop().await?, job.state().await?);

    // The hook runs for every job that ends, also if it fails or is cancelled before it runs.
    let failing = exports.dispatch(0).id("export-2").await?;
    let unwanted = exports.dispatch(70).id("export-3").await?;
    println!("export-3: {:?}", unwanted.cancel("no longer needed").await?);
    let second = app.worker().spawn();
    println!("export-1 has {} rows", job.result().await?);
    for job in [failing, unwanted] {
        if let Err(e) = job.result().await {
            println!("{e}");
        }
    }
    println!("the second worker stopped: {}", second.stop().await?);
    assert_eq!((seen.handlers.load(Ordering::Relaxed), seen.hooks.load(Ordering::Relaxed)), (2, 3));
    Ok(())
}
