//! Code around each run: the tenant of a job for everything that its handler calls, and how long each run took.
//!
//! Run it with `cargo run -p heartline-examples --example layers`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, Next, RunFailure, RunValue, TaskDef};

const INVOICE: TaskDef<u32, String> = TaskDef::new("invoice");

tokio::task_local! {
    /// The tenant of the job that runs.
    static TENANT: String;
}

/// Sets the tenant from a header. A job without one fails, and is not retried.
async fn with_tenant(ctx: Context, next: Next) -> Result<RunValue, RunFailure> {
    let tenant = ctx.require_header("tenant")?.to_owned();
    TENANT.scope(tenant, next.run(ctx)).await
}

/// Adds how long the run took, ms. A run that panics or takes too long ends here, too, and is not added: an `Observer` sees those.
async fn timed(sum: Arc<AtomicU64>, ctx: Context, next: Next) -> Result<RunValue, RunFailure> {
    let begun = Instant::now();
    let ended = next.run(ctx).await;
    sum.fetch_add(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    ended
}

/// Anything that a handler calls can ask for the tenant.
fn database() -> String {
    TENANT.with(|tenant| format!("db-{tenant}"))
}

async fn invoice(_: Context, number: u32) -> Result<String, JobError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(format!("invoice {number} in {}", database()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let sum = Arc::new(AtomicU64::new(0));
    let app = App::builder().redis(url).prefix(format!("layers-{}", uuid::Uuid::now_v7()));
    // The first layer is the outermost.
    let of_runs = Arc::clone(&sum);
    let app = app.layer(move |ctx, next| timed(Arc::clone(&of_runs), ctx, next)).layer(with_tenant).build().await?;
    app.register(INVOICE.handler(invoice))?;
    let worker = app.worker().spawn();

    for (number, tenant) in [(1, "acme"), (2, "globex")] {
        let job = INVOICE.dispatch(&app, number).header("tenant", tenant).await?;
        let text = job.result().await?;
        println!("{text}");
        assert_eq!(text, format!("invoice {number} in db-{tenant}"));
    }
    let Err(refused) = INVOICE.dispatch(&app, 3).await?.result().await else {
        anyhow::bail!("a job without a tenant ran")
    };
    println!("{refused}");
    assert!(refused.to_string().contains(r#"the job has no header "tenant""#));

    println!("the worker stopped: {}", worker.stop().await?);
    let took = sum.load(Ordering::Relaxed);
    println!("all runs took {took} ms");
    assert!(took >= 40);
    Ok(())
}
