//! Text from outside that people see: it must not affect their terminals and logs, and must not reveal secrets.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::time::Duration;

use heartline::{App, CancelOutcome, Error, Event, JobError, TaskOptions, TaskRef, codes};
use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::faults::watch::Watch;
use crate::support::task::{INTERVAL, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};

/// Colours the rest on a terminal, and begins a new line in a log.
const NASTY: &str = "\u{1b}[31mred\nline\r\u{7}";

/// Checks and returns the text, which shows only the readable part of the nasty one.
fn harmless(what: &str, shown: impl Display) -> String {
    let text = shown.to_string();
    assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
    text
}

struct BreaksWhenDropped;

impl Drop for BreaksWhenDropped {
    fn drop(&mut self) {
        panic!("{NASTY}");
    }
}

async fn nasty(kind: String) -> Result<u64, JobError> {
    match kind.as_str() {
        "error" => Err(NASTY.into()),
        "panic" => panic!("{NASTY}"),
        "dropped" => {
            let _guard = BreaksWhenDropped;
            std::future::pending().await
        }
        _ => std::future::pending().await,
    }
}

async fn ended(task: &TaskRef<String, u64>, kind: &str) -> Error {
    let job = task.dispatch(kind.to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap_err()
}

#[tokio::test]
async fn messages_and_reasons_contain_no_control_characters() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let options = options(INTERVAL).cancel_grace(Duration::ZERO);
    let task = app.task(&test.name, options, |_, kind: String| nasty(kind)).unwrap();
    let worker = TestWorker::start(app.worker());

    for (kind, code) in [("error", codes::HANDLER_ERROR), ("panic", codes::PANIC)] {
        let e = ended(&task, kind).await;
        let shown = harmless(kind, &e);
        assert!(shown.contains("red") && shown.contains("line"), "{shown}");
        let Error::JobFailed(failure) = e else { panic!("{e}") };
        assert_eq!(failure.code, code);
        harmless(kind, &failure);
        let stored = task.job(&failure.id).await.unwrap().error.unwrap();
        harmless(kind, &stored);
    }

    let waiting = task.dispatch("waits".to_owned()).delay(PATIENCE).await.unwrap();
    assert_eq!(waiting.cancel(NASTY).await.unwrap(), CancelOutcome::Cancelled);
    let held = task.dispatch("dropped".to_owned()).await.unwrap();
    eventually("it runs", PATIENCE, async || task.counts().await.unwrap().running == 1).await;
    assert_eq!(held.cancel(NASTY).await.unwrap(), CancelOutcome::Requested);
    for job in [&waiting, &held] {
        let e = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap_err();
        assert!(matches!(e, Error::JobCancelled { .. }), "{e:?}");
        let shown = harmless("cancelled", &e);
        assert!(shown.contains("red") && shown.contains("line"), "{shown}");
        harmless("cancelled", task.job(job.id()).await.unwrap().error.unwrap());
    }

    let line = warnings.wait_for(&[&test.name, "panicked while it was dropped"], PATIENCE).await;
    assert!(line.contains("red") && line.contains("line"), "{line:?}");
    worker.stop().await;
    for line in warnings.all().iter().filter(|line| line.contains(&test.name)) {
        harmless("a line of the log", line);
    }
}

#[tokio::test]
async fn an_id_from_another_client_contains_no_control_characters() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let (app, task) = test.producer().await;
    let mut events = app.events();
    // No generated id is like this: it was written by hand, with malformed options.
    let id = "a\u{1b}[31mred\u{7}";
    let mut conn = Watch::new(&test, &redis).await.conn;
    let () = conn.hset(test.key("payload"), id, "\"go\"").await.unwrap();
    let () = conn.hset(test.key("options"), id, "{\"timeout_ms\":\"\u{1b}[31mred\"}").await.unwrap();
    let () = conn.rpush(test.key("wait"), id).await.unwrap();
    test.journal.open("go");
    let worker = test.start_worker(options(INTERVAL)).await;
    let ended = async {
        loop {
            let event: Event = events.recv().await.unwrap();
            assert!(harmless("an id", event.id()).contains("red"));
            if event.is_terminal() {
                return event.id().clone();
            }
        }
    };
    let id = tokio::time::timeout(PATIENCE, ended).await.expect("the job does not end");
    harmless("an error", Error::JobNotFound { task: task.name().to_owned(), id });
    warnings.wait_for(&["own options cannot be read", "red"], PATIENCE).await;
    worker.stop().await;
    for line in warnings.all().iter().filter(|line| line.contains(&test.name) || line.contains("[31mred")) {
        harmless("a line of the log", line);
    }
}

/// Checks what a program may print of a value in its logs.
fn hides(what: &str, shown: impl Debug) {
    for text in [format!("{shown:?}"), format!("{shown:#?}")] {
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
}

#[tokio::test]
async fn no_shown_text_contains_the_password() {
    let warnings = Warnings::capture();
    // No server uses this port.
    let url = "redis://user:hunter2@127.0.0.1:1/";
    let builder = App::builder().redis(url);
    hides("the builder", &builder);
    let e = builder.build().await.unwrap_err();
    hides("an error of the builder", &e);
    for malformed in ["redis://user:hunter2@127.0.0.1:port/", "redis://user:hunter2@", "user:hunter2@127.0.0.1:1"] {
        let e = App::builder().redis(malformed).build().await.unwrap_err();
        hides("an error of a malformed address", &e);
        hides("it as text", e.to_string());
    }

    let app = App::builder().redis(url).lazy().build().await.unwrap();
    let task = app.task("work", TaskOptions::new(), |_, (): ()| async { Ok::<_, heartline::JobError>(()) }).unwrap();
    hides("the App", &app);
    hides("a task", &task);
    hides("a job to be dispatched", task.dispatch(()));
    hides("a handle", task.handle("export-7").unwrap());
    hides("a subscription", app.events());
    hides("another subscription", app.on_stalled());
    let worker = app.worker();
    hides("a worker", &worker);
    let running = worker.spawn();
    hides("a running worker", &running);
    warnings.wait_for(&["WARN", running.id().as_str(), "waits for redis"], PATIENCE).await;
    let _ = running.stop().await.unwrap();
    let refused = task.handle("export-7").unwrap().state().await.unwrap_err();
    for e in [&refused, &e] {
        hides("an error", e);
        let mut cause: Option<&(dyn StdError + 'static)> = Some(e);
        while let Some(e) = cause {
            hides("a cause", e);
            hides("a cause as text", e.to_string());
            cause = e.source();
        }
    }
    for line in warnings.all() {
        hides("a line of the log", line);
    }
}
