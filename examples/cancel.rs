//! Cancels jobs: a waiting job ends at once, and the handler of a running job is asked to stop.
//!
//! Run it with `cargo run -p heartline-examples --example cancel`. It uses the Redis of `REDIS_URL`, or a private server.

use std::time::{Duration, Instant};

use heartline::{App, CancelOutcome, Context, Error, JobError, JobState, TaskOptions};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("cancel-{}", uuid::Uuid::now_v7())).build().await?;

    let (running, mut runs) = mpsc::unbounded_channel();
    // One slot, so that the second job has to wait. After a cancellation, the handler has 500 ms to return.
    let options = TaskOptions::new().concurrency(1).cancel_grace(Duration::from_millis(500));
    let renders = app.task("render", options, move |ctx: Context, film: String| {
        let running = running.clone();
        async move {
            let _ = running.send(());
            tokio::select! {
                () = render(&film) => Ok("rendered".to_owned()),
                () = ctx.cancelled() => {
                    println!("{film}: cancelled, removing the partial files");
                    Err(JobError::from("cancelled"))
                }
            }
        }
    })?;
    let worker = app.worker().spawn();

    let first = renders.dispatch("first".to_owned()).await?;
    let second = renders.dispatch("second".to_owned()).await?;
    runs.recv().await;

    assert_eq!(second.cancel("no longer needed").await?, CancelOutcome::Cancelled);
    assert_eq!(second.state().await?, JobState::Cancelled);

    let asked = Instant::now();
    assert_eq!(first.cancel("the director walked out").await?, CancelOutcome::Requested);
    match first.result().await {
        Err(Error::JobCancelled { reason, .. }) => println!("first: {reason}, after {:.0?}", asked.elapsed()),
        other => anyhow::bail!("a cancelled job ended as {other:?}"),
    }

    // Cancelling a job again is not an error.
    assert_eq!(first.cancel("again").await?, CancelOutcome::AlreadyTerminal(JobState::Cancelled));

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}

/// Simulates an hour of work.
async fn render(film: &str) {
    println!("{film}: rendering");
    tokio::time::sleep(Duration::from_secs(3600)).await;
}
