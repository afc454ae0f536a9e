//! Detects a handler that hangs in a healthy process: with `Heartbeat::Manual`, only the handler's own calls of
//! `ctx.heartbeat()` count.
//!
//! Run it with `cargo run -p heartline-examples --example manual_heartbeat`. It uses the Redis of `REDIS_URL`, or a private
//! server.

use std::time::Duration;

use heartline::{App, Context, Heartbeat, JobError, StallAction, StallOptions, StallReason, TaskOptions};

async fn download(ctx: Context, parts: u32) -> Result<u32, JobError> {
    for part in 1..=parts {
        if part == 3 && ctx.stalled_count() == 0 {
            println!("part {part}: the server does not answer, and the handler hangs");
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Without a call within the interval, the job counts as stalled.
        ctx.heartbeat()?;
        println!("part {part}: received (stalls before this run: {})", ctx.stalled_count());
    }
    Ok(parts)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("manual-heartbeat-{}", uuid::Uuid::now_v7())).build().await?;

    let stall = StallOptions::new().interval(Duration::from_secs(1)).heartbeat(Heartbeat::Manual).max_count(1);
    // One slot: the job can only run again after the hung run has released it.
    let options = TaskOptions::new().stall(stall).concurrency(1).cancel_grace(Duration::from_millis(200));
    let downloads = app.task("download", options, download)?;
    let mut stalled = app.on_stalled();
    let worker = app.worker().spawn();

    let handle = downloads.dispatch(5).await?;
    let event = stalled.recv().await?;
    println!("{} {} stalled: {}, so it is {}", event.task, event.id, event.reason, event.action);
    assert_eq!(&event.id, handle.id());
    assert_eq!(event.reason, StallReason::HandlerSilent);
    assert_eq!((event.action, event.stalled_count), (StallAction::Recovered, 1));

    // The worker drops the hung run and runs the job again.
    assert_eq!(handle.result().await?, 5);
    assert_eq!(downloads.job(handle.id()).await?.stalled_count, 1);

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
