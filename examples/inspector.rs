//! Lists tasks and failed jobs, retries the failed ones, and audits a task, as an admin page would.
//!
//! Run it with `cargo run -p heartline-examples --example inspector`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heartline::{App, Context, JobFilter, JobState, TaskOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("inspector-{}", uuid::Uuid::now_v7())).build().await?;
    let has_room = Arc::new(AtomicBool::new(false));
    let room = Arc::clone(&has_room);
    let exports = app.task("export", TaskOptions::new(), move |_ctx: Context, _rows: u32| {
        let has_room = room.load(Ordering::SeqCst);
        async move { if has_room { Ok(()) } else { Err("the disk is full") } }
    })?;
    let worker = app.worker().spawn();
    for job in exports.dispatch_many(0..5).await? {
        assert!(job.result().await.is_err());
    }

    // An inspector only needs names. It has neither the handlers nor the types.
    let inspector = app.inspector().by("ada");
    for task in inspector.tasks().await? {
        let (workers, counts) = (task.live_workers, task.counts);
        println!("{}: {} waiting, {} failed, {workers} workers", task.task, counts.waiting, counts.failed);
    }
    let failed = JobFilter::new(JobState::Failed).message_contains("disk");
    let page = inspector.jobs("export", &failed, None, 50).await?;
    for job in &page.jobs {
        println!("  {} attempt {}: {}", job.id, job.failed_attempts, job.message.as_deref().unwrap_or("-"));
    }
    has_room.store(true, Ordering::SeqCst);
    let act = inspector.retry("export", failed).await?;
    println!("{} run again, {} refused", act.done, act.refused);
    for job in &page.jobs {
        let state = inspector.wait("export", job.id.as_str(), Duration::from_secs(10)).await?;
        assert_eq!(state, JobState::Completed);
    }
    let audit = inspector.audit("export").await?;
    println!("{} jobs checked, {} faults", audit.parts[0].looked, audit.parts[0].found);
    assert!(act.done == 5 && audit.is_clean());
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
