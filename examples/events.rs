//! Receives the events of all jobs, from any process.
//!
//! Run it with `cargo run -p heartline-examples --example events`. It uses the Redis of `REDIS_URL`, or a private server.

use std::time::Duration;

use heartline::{App, Context, Event, JobError, RecvError, RetryPolicy, TaskOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("events-{}", uuid::Uuid::now_v7())).build().await?;
    let options = TaskOptions::new().retry(RetryPolicy::new().attempts(2).fixed(Duration::from_millis(100)));
    let parse =
        app.task("parse", options, |_ctx: Context, text: String| async move { Ok::<i64, JobError>(text.parse()?) })?;

    // Later events are delivered, or reported as missed.
    let mut events = app.events();
    let worker = app.worker().spawn();

    // Once a job has ended, the worker has declared the task: that it has no hook to run when a job is cancelled.
    parse.dispatch("42".to_owned()).id("good").await?.result().await?;
    parse.dispatch("forty-two".to_owned()).id("bad").await?;
    let later = parse.dispatch("7".to_owned()).id("later").delay(Duration::from_secs(3600)).await?;
    later.cancel("no longer needed").await?;

    let (mut good, mut bad, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    let mut ended = 0;
    while ended < 3 {
        // A subscription is also a `Stream`.
        let event = match events.recv().await {
            Ok(event) => event,
            // A reader that is too slow gets the number of missed events, and can continue with later ones.
            Err(RecvError::Lagged(missed)) => anyhow::bail!("{missed} events were missed"),
            Err(e) => return Err(e.into()),
        };
        println!("{:16} {}{}", event.name(), event.id(), details(&event));
        match event.id().as_str() {
            "good" => good.push(event.name()),
            "bad" => bad.push(event.name()),
            _ => cancelled.push(event.name()),
        }
        ended += usize::from(event.is_terminal());
    }
    // The events of a job arrive in the order in which they happened.
    assert_eq!(good, ["task:dispatched", "task:started", "task:completed"]);
    assert_eq!(bad, ["task:dispatched", "task:started", "task:retrying", "task:started", "task:failed"]);
    assert_eq!(cancelled, ["task:dispatched", "task:cancelled"]);

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}

/// The details that some events carry.
fn details(event: &Event) -> String {
    match event {
        Event::Started { waited: Some(waited), .. } => format!(" (after {waited:?})"),
        Event::Started { attempt, .. } => format!(" (attempt {attempt})"),
        Event::Completed { ran, .. } => format!(" (ran {ran:?})"),
        Event::Retrying { delay, .. } => format!(" (in {delay:?})"),
        Event::Failed { code, .. } => format!(" ({code})"),
        Event::Stalled(stalled) => format!(" ({})", stalled.action),
        _ => String::new(),
    }
}
