//! A hook that runs when a job has ended, whatever became of it: here it sends a mail. The worker stops in the middle of one hook;
//! the next worker runs it again, and not the handler.
//!
//! Run it with `cargo run -p heartline-examples --example on_complete`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heartline::{App, Context, JobError, Outcome, TaskOptions};
use tokio::sync::Notify;

/// What runs count, and how the first worker is stopped in the right moment.
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
    // At least once: behind this line a worker may die before Redis hears of it. The id of the job tells the mails apart.
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
    // A worker that is told to stop does not wait for the hook.
    let options = TaskOptions::new().shutdown_grace(Duration::ZERO).cancel_grace(Duration::from_millis(50));
    let of_handlers = Arc::clone(&seen);
    let exports = app.task("export", options, move |_: Context, rows| export(Arc::clone(&of_handlers), rows))?;
    let of_hooks = Arc::clone(&seen);
    exports.on_complete(move |ctx, outcome| send_mail(ctx, outcome, Arc::clone(&of_hooks)))?;

    let first = app.worker().spawn();
    let job = exports.dispatch(40).id("export-1").await?;
    seen.hook_began.notified().await;
    println!("the first worker stopped: {}; the job is {}", first.stop().await?, job.state().await?);

    // The hook runs for every job that ends: also for one that fails, or is cancelled before anybody runs it.
    let failing = exports.dispatch(0).id("export-2").await?;
    let unwanted = exports.dispatch(70).id("export-3").await?;
    println!("export-3: {:?}", unwanted.cancel("not needed any more").await?);
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
