//! Stops a worker at Ctrl-C or SIGTERM: it claims no more jobs, waits for running jobs during the shutdown grace, and
//! requeues the rest for other workers. This counts no stall and uses no attempt.
//!
//! Run it with `cargo run -p heartline-examples --example graceful_shutdown`. It uses the Redis of `REDIS_URL`, or a private
//! server. The worker stops by itself; Ctrl-C or SIGTERM stops it earlier.

use std::time::Duration;

use heartline::{App, Context, JobError, JobState, StopReason, TaskOptions, shutdown_signal};
use tokio::sync::mpsc;

async fn copy(ctx: Context, seconds: u64) -> Result<u64, JobError> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds)) => Ok(seconds),
        // The grace period is over. Any error requeues the job; a value would still complete it.
        () = ctx.cancelled() => {
            println!("the {seconds} s job is interrupted");
            Err(JobError::from("interrupted"))
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("shutdown-{}", uuid::Uuid::now_v7())).build().await?;
    let (running, mut runs) = mpsc::unbounded_channel();
    let copies = app.task(
        "copy",
        TaskOptions::new().shutdown_grace(Duration::from_secs(2)).cancel_grace(Duration::from_millis(500)),
        move |ctx: Context, seconds: u64| {
            let _ = running.send(());
            copy(ctx, seconds)
        },
    )?;
    let short = copies.dispatch(2).await?;
    let long = copies.dispatch(600).await?;

    // An application only needs `app.worker().run_until_signal().await?`.
    let stop = async move {
        let both_run = async {
            runs.recv().await;
            runs.recv().await;
            tokio::time::sleep(Duration::from_secs(1)).await; // time for your Ctrl-C
        };
        tokio::select! {
            () = shutdown_signal() => println!("received a signal: stopping"),
            () = both_run => println!("both jobs run and no signal arrived: stopping"),
        }
    };
    let worker = app.worker();
    println!("a shutdown of this worker takes at most {:?}", worker.max_shutdown_time());
    let reason = worker.run_until(stop).await?;
    println!("the worker stopped: {reason:?}");
    assert_eq!(reason, StopReason::Shutdown, "every job was recorded or requeued");

    // After an early signal, the jobs may not have run at all.
    println!("the short job is {}, the long one {}", short.state().await?, long.state().await?);
    assert_eq!(long.state().await?, JobState::Waiting);
    let job = copies.job(long.id()).await?;
    assert_eq!((job.failed_attempts, job.stalled_count), (0, 0));
    Ok(())
}
