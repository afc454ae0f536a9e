//! Runs recurring jobs: a schedule in code, another one that is put at run time, a pause, and the count of each tick.
//!
//! Run it with `cargo run -p heartline-examples --example recurring`. It uses the Redis of `REDIS_URL`, or a private server.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use heartline::{App, Context, JobError, Missed, Overlap, Schedule, TaskDef};
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);

const REPORT: TaskDef<String, ()> = TaskDef::new("report");

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A preview needs no Redis.
    let nightly = Schedule::cron("30 2 * * *")?.tz("Europe/Berlin")?;
    let now = SystemTime::now();
    for tick in nightly.preview(now).take(3) {
        println!("{nightly} runs in {} hours", tick.duration_since(now)?.as_secs() / 3600);
    }

    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("recurring-{}", uuid::Uuid::now_v7())).build().await?;
    let (sender, mut runs) = mpsc::unbounded_channel();
    let report = move |ctx: Context, what: String| {
        let sender = sender.clone();
        async move {
            let tick = ctx.tick().ok_or_else(|| JobError::new("this job has no tick"))?;
            let _ = sender.send((what, tick.clone()));
            Ok::<(), JobError>(())
        }
    };
    let reports = app.register(REPORT.handler(report))?;
    let reports = reports.schedule("nightly", nightly.missed(Missed::ONCE), "sales".to_owned())?;
    let reports = reports.schedule("often", Schedule::every(SECOND).overlap(Overlap::Skip), "stock".to_owned())?;
    // A second worker process would change nothing: each tick has one job.
    let worker = app.worker().spawn();

    let schedules = reports.schedules();
    let placement = schedules.put("acme", Schedule::every(2 * SECOND), "acme".to_owned()).await?;
    assert!(placement.is_new);
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let Some((what, tick)) = runs.recv().await else { break };
        println!("{what}: a tick of {}", tick.schedule);
        assert!(tick.due <= SystemTime::now() && seen.insert((tick.schedule, tick.due)), "each tick runs once");
    }

    schedules.pause("often", "the warehouse is closed").await?;
    schedules.run_now("nightly").await?.result().await?;
    for info in schedules.list().await? {
        let (name, fired, paused) = (info.name, info.fired, info.paused_ticks);
        println!("{name} ({}): {fired} ticks fired, {paused} paused, {} jobs by hand", info.rule, info.by_hand);
    }
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
