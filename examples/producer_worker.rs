//! Runs a producer and a worker as two processes that share only Redis.
//!
//! Run it with `cargo run -p heartline-examples --example producer_worker`: the producer starts the worker. To run them
//! separately, set `REDIS_URL` and run it twice: with the argument `worker` (stops at Ctrl-D) and with `producer`.

use std::process::Stdio;

use heartline::{App, Context, JobError, StopReason, TaskOptions, TaskRef};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

// Both sides must agree on the name of the task and its types.
const TASK: &str = "resize";

#[derive(Serialize, Deserialize)]
struct Resize {
    width: u32,
    height: u32,
    percent: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let role = std::env::args().nth(1);
    let (_server, url) = heartline::testing::redis_url().await?;
    match role.as_deref() {
        Some("worker") => work(&url).await,
        Some("producer") => produce(&url).await,
        _ => {
            // The worker stops when the pipe closes, so it does not outlive this process.
            let mut worker = Command::new(std::env::current_exe()?)
                .arg("worker")
                .env("REDIS_URL", &url)
                .stdin(Stdio::piped())
                .spawn()?;
            let pipe = worker.stdin.take();
            tokio::select! {
                produced = produce(&url) => produced?,
                status = worker.wait() => anyhow::bail!("the worker ended too early: {}", status?),
            }
            drop(pipe);
            let status = worker.wait().await?;
            anyhow::ensure!(status.success(), "the worker ended with {status}");
            Ok(())
        }
    }
}

/// The worker has the handler.
async fn work(url: &str) -> anyhow::Result<()> {
    let app = App::builder().redis(url).prefix("producer-worker").build().await?;
    let _resizes: TaskRef<Resize, (u32, u32)> =
        app.task(TASK, TaskOptions::new().concurrency(4), |_ctx: Context, image: Resize| async move {
            println!("worker {}: {} x {}", std::process::id(), image.width, image.height);
            Ok::<_, JobError>((image.width * image.percent / 100, image.height * image.percent / 100))
        })?;
    let input_ends = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    let reason = app.worker().run_until(input_ends).await?;
    anyhow::ensure!(reason == StopReason::Shutdown, "the worker did not stop cleanly: {reason:?}");
    Ok(())
}

/// The producer has only a reference to the task.
async fn produce(url: &str) -> anyhow::Result<()> {
    let app = App::builder().redis(url).prefix("producer-worker").build().await?;
    let resizes = app.task_ref::<Resize, (u32, u32)>(TASK)?;
    let images = (1..=5).map(|n| Resize { width: n * 400, height: n * 300, percent: 50 });
    let handles = resizes.dispatch_many(images).await?;
    for (n, handle) in (1..).zip(&handles) {
        let size = handle.result().await?;
        println!("producer {}: now {} x {}", std::process::id(), size.0, size.1);
        assert_eq!(size, (n * 200, n * 150));
    }
    Ok(())
}
