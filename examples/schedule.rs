//! Delays jobs, orders them by priority, and uses an id so that a job is not dispatched twice.
//!
//! Run it with `cargo run -p heartline-examples --example schedule`. It uses the Redis of `REDIS_URL`, or a private server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, JobState, Priority, TaskOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("schedule-{}", uuid::Uuid::now_v7())).build().await?;

    let order = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&order);
    // One at a time, so that the order is visible.
    let mails = app.task("send-mail", TaskOptions::new().concurrency(1), move |_ctx: Context, mail: String| {
        println!("sent: {mail}");
        sent.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
        async { Ok::<(), JobError>(()) }
    })?;

    // No worker runs yet, so the jobs wait. A steady flow of high-priority jobs would starve the others.
    let newsletter = mails.dispatch("newsletter".to_owned()).priority(Priority::Low).await?;
    mails.dispatch("invoice".to_owned()).await?;
    mails.dispatch("password reset".to_owned()).priority(Priority::High).await?;
    let dispatched = Instant::now();
    let reminder = mails.dispatch("reminder".to_owned()).delay(Duration::from_secs(1)).await?;
    assert_eq!(reminder.state().await?, JobState::Delayed);

    // A dispatch with an id can be repeated: the second one changes nothing.
    assert_eq!(mails.dispatch("welcome".to_owned()).id("welcome-ada").await?.existed(), Some(false));
    assert_eq!(mails.dispatch("welcome again".to_owned()).id("welcome-ada").await?.existed(), Some(true));

    let counts = mails.counts().await?;
    println!("waiting: {}, delayed: {}", counts.waiting, counts.delayed);
    assert_eq!((counts.waiting, counts.delayed), (4, 1));

    let worker = app.worker().spawn();
    newsletter.result().await?;
    reminder.result().await?;
    assert!(dispatched.elapsed() >= Duration::from_secs(1));
    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(order, ["password reset", "invoice", "welcome", "newsletter", "reminder"]);

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
