//! Runs a job that takes much longer than the stall interval. Its worker sends heartbeats, so the job does not stall, and
//! `ctx.heartbeat()` returns an error when the handler has to stop. Blocking work belongs in `spawn_blocking`.
//!
//! Run it with `cargo run -p heartline-examples --example long_job_heartbeat`. It uses the Redis of `REDIS_URL`, or a private
//! server.

use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, StallOptions, TaskOptions};

const INTERVAL: Duration = Duration::from_secs(1);

async fn add_up(ctx: Context, upto: u64) -> Result<u64, JobError> {
    // Dropping a future does not stop a blocking thread. So the thread gets a clone of the context, and checks it.
    let beat = ctx.clone();
    let sum = tokio::task::spawn_blocking(move || {
        let mut sum = 0;
        for number in 1..=upto {
            sum += number;
            std::thread::sleep(Duration::from_millis(50)); // the real work
            // Cheap enough for every step. It fails if the job was lost or cancelled, or if the worker stops.
            beat.heartbeat()?;
        }
        Ok::<u64, heartline::Interrupted>(sum)
    });
    Ok(sum.await??)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("long-job-{}", uuid::Uuid::now_v7())).build().await?;

    // With max_count 0 the first stall would fail the job.
    let stall = StallOptions::new().interval(INTERVAL).max_count(0);
    let sums = app.task("add-up", TaskOptions::new().stall(stall), add_up)?;
    let mut stalled = app.on_stalled();
    let worker = app.worker().spawn();

    let started = Instant::now();
    let handle = sums.dispatch(80).await?;
    let sum = handle.result().await?;
    println!("the sum is {sum}, after {:.1?} with an interval of {INTERVAL:?}", started.elapsed());
    assert_eq!(sum, 3240);
    assert!(started.elapsed() > INTERVAL * 3);
    assert_eq!(sums.job(handle.id()).await?.stalled_count, 0);
    assert_eq!(stalled.try_recv()?, None);

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
