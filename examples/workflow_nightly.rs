//! Runs a nightly report once a day under a fixed id, even if several hosts start it, and retries its failed nodes.
//!
//! Run it with `cargo run -p heartline-examples --example workflow_nightly`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heartline::{App, Context, Graph, JobError, Node, OnFailure, TaskDef, WorkflowOptions, WorkflowState};

const READ: TaskDef<String, u64> = TaskDef::new("read");
const REPORT: TaskDef<String, String> = TaskDef::new("report");
const MAIL: TaskDef<(), ()> = TaskDef::new("mail");

fn nightly(day: &str) -> Graph<String> {
    let graph = Graph::new();
    let read = |shop: &str| graph.node(format!("read-{shop}"), &READ, shop.to_owned());
    let shops: Vec<Node<u64>> = ["north", "south", "harbour"].map(read).into();
    let report = graph.node("report", &REPORT, day.to_owned()).after(&shops);
    // The report succeeds even if the mail bounces.
    graph.node("mail", &MAIL, ()).after(&report).optional();
    graph.output(&report)
}

async fn report(ctx: Context, day: String) -> Result<String, JobError> {
    let mut total = 0;
    for (_, read) in ctx.upstreams::<u64>().await? {
        total += read?;
    }
    Ok(format!("{day}: {total}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("nightly-{}", uuid::Uuid::now_v7())).build().await?;
    let is_open = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&is_open);
    app.register(
        READ.handler(move |_: Context, shop: String| {
            let is_closed = shop == "harbour" && !open.load(Ordering::SeqCst);
            async move {
                if is_closed { Err(JobError::new("the shop does not answer").fatal()) } else { Ok(shop.len() as u64) }
            }
        }),
    )?;
    app.register(REPORT.handler(report))?;
    app.register(MAIL.handler(|_: Context, (): ()| async { Err::<(), _>(JobError::new("the mail bounced").fatal()) }))?;
    let worker = app.worker().spawn();

    let options = WorkflowOptions::new().on_failure(OnFailure::Pause);
    let reports = app.workflow("reports", options)?;
    // Two hosts have the same cron job; only one starts the report. After six hours, the report fails.
    let start = || reports.start(nightly("2026-11-21")).id("2026-11-21").deadline(Duration::from_secs(6 * 3600));
    let (one, other) = tokio::try_join!(start(), start())?;
    println!("started {}; the second start found it", one.id());
    assert_ne!(one.existed(), other.existed());
    while one.status().await?.state != WorkflowState::Paused || one.status().await?.open > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("a shop does not answer: the report is paused until a person retries it");
    is_open.store(true, Ordering::SeqCst);
    one.retry_failed().await?;
    let text = other.result().await?;
    println!("{text}");
    assert_eq!(text, "2026-11-21: 17");
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
