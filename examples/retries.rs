//! Retries failed jobs by a retry policy: pauses, fatal errors, and a pause that the handler sets.
//!
//! Run it with `cargo run -p heartline-examples --example retries`. It uses the Redis of `REDIS_URL`, or a private server.

use std::time::{Duration, Instant};

use heartline::{App, Context, Error, Jitter, JobError, RetryPolicy, TaskOptions};

/// Calls a service that is down at first and does not have every page.
async fn fetch(ctx: Context, page: String) -> Result<String, JobError> {
    println!("{page}: attempt {} of {}", ctx.attempt(), ctx.max_attempts());
    match (page.as_str(), ctx.attempt()) {
        // Another attempt would not help.
        ("/missing", _) => Err(JobError::new("404 not found").fatal()),
        // The service says when to retry. This takes precedence over the policy's pause.
        ("/busy", 1) => Err(JobError::new("503 come back later").retry_after(Duration::from_millis(300))),
        // Any error can be returned with `?`. A panic and a time-out count as a failed attempt too.
        ("/flaky", 1 | 2) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))?,
        ("/down", _) => Err("500 internal error".into()),
        _ => Ok(format!("the text of {page}")),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("retries-{}", uuid::Uuid::now_v7())).build().await?;

    // Three runs in all, 100 ms and 200 ms apart. Without a policy a job runs once.
    let policy = RetryPolicy::new().attempts(3).exponential(Duration::from_millis(100), 2.0).jitter(Jitter::None);
    let pages = app.task("fetch", TaskOptions::new().retry(policy), fetch)?;
    let worker = app.worker().spawn();

    let started = Instant::now();
    assert_eq!(pages.dispatch("/flaky".to_owned()).await?.result().await?, "the text of /flaky");
    assert!(started.elapsed() >= Duration::from_millis(300), "both pauses were kept");
    assert_eq!(pages.dispatch("/busy".to_owned()).await?.result().await?, "the text of /busy");

    // After the last attempt, the job fails with its last error. A dispatch can set its own number of attempts.
    for (handle, attempts) in [
        (pages.dispatch("/down".to_owned()).await?, 3),
        (pages.dispatch("/down".to_owned()).attempts(2).await?, 2),
        (pages.dispatch("/missing".to_owned()).await?, 1),
    ] {
        match handle.result().await {
            Err(Error::JobFailed(failure)) => {
                println!("attempt {}: {failure}", failure.failed_attempts);
                assert_eq!(failure.failed_attempts, attempts);
            }
            other => anyhow::bail!("a missing page was fetched: {other:?}"),
        }
    }

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
