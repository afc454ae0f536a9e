//! A value of another type under each key of a task in turn, through the public API.

use super::shutdown::stall;
use crate::scripts::call::Task;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, Warnings, eventually};
use heartline::{App, CancelOutcome, Error, JobState, Priority, TaskRef};
use std::time::Duration;

/// Keys that only announce events.
const ANNOUNCEMENTS: [&str; 3] = ["events", "stalls", "wake"];

/// An app, and the same task by hand.
async fn task() -> (App, TaskRef<u32, ()>, Task) {
    let redis = TestRedis::shared();
    let by_hand = Task::on(redis.clone(), "").await;
    let (prefix, _) = by_hand.prefix.split_once(":{").unwrap();
    let app = App::builder().redis(redis.app_url()).prefix(prefix).build().await.unwrap();
    let task = app.task_ref("task").unwrap();
    (app, task, by_hand)
}

fn suffixes(task: &Task, script: &str) -> Vec<&'static str> {
    task.script(script).keys.clone()
}

fn is_wrong_type(error: &Error, script: &str) -> bool {
    let Error::Server { name, source } = error else { return false };
    *name == script && source.code() == Some("WRONGTYPE") && !error.is_retryable()
}

#[tokio::test]
async fn dispatch_next_to_a_foreign_key_is_done_fully_or_not_at_all() {
    let (_, _, sample) = task().await;
    for key in suffixes(&sample, "dispatch") {
        let (_app, task, mut by_hand) = task().await;
        by_hand.make_foreign(key).await;
        let before = by_hand.exact().await;
        let immediate = task.dispatch(1).id("now").priority(Priority::High).max_stalls(2).attempts(3).await;
        let delayed = task.dispatch(2).id("later").delay(Duration::from_secs(60)).priority(Priority::Low).await;
        let plain = task.dispatch(3).id("plain").await;
        let many = task.dispatch_many_with_ids([("many-1".to_owned(), 4), ("many-2".to_owned(), 5)]).await;
        if ANNOUNCEMENTS.contains(&key) {
            assert!(immediate.is_ok() && delayed.is_ok() && plain.is_ok() && many.is_ok(), "{key}");
            assert_eq!(by_hand.list("wait").await, ["plain", "many-1", "many-2"], "{key}");
            assert_eq!(by_hand.list("wait:high").await, ["now"], "{key}");
            continue;
        }
        let mut written = false;
        for error in [immediate.err(), delayed.err(), plain.err()] {
            match error {
                Some(error) => assert!(is_wrong_type(&error, "dispatch"), "{key}: {error:?}"),
                None => written = true,
            }
        }
        match many.err() {
            Some(Error::Partial { dispatched, source }) => {
                assert!(dispatched.is_empty() && is_wrong_type(&source, "dispatch"), "{key}: {source:?}");
            }
            Some(other) => panic!("{key}: {other:?}"),
            None => written = true,
        }
        if !written {
            assert_eq!(by_hand.exact().await, before, "{key}");
        }
        // Each payload has a place, and each place a payload.
        for (id, list) in [("now", "wait:high"), ("plain", "wait"), ("many-1", "wait"), ("many-2", "wait")] {
            if key == "payload" || key == list {
                continue;
            }
            let payload = by_hand.held("payload").await.contains(&format!("\"{id}\""));
            assert_eq!(payload, by_hand.list(list).await.contains(&id.to_owned()), "{id} next to a foreign {key}");
        }
    }
}

#[tokio::test]
async fn cancel_next_to_a_foreign_key_is_done_fully_or_not_at_all() {
    let (_, _, sample) = task().await;
    for key in suffixes(&sample, "cancel") {
        let (_app, task, mut by_hand) = task().await;
        by_hand.waiting(&["waiting"]).await;
        by_hand.running("w", &[("running", 7)]).await;
        by_hand.hset("payload", &[("delayed", "1")]).await;
        by_hand.zadd("delayed", 9e15, "delayed").await;
        by_hand.make_foreign(key).await;
        let before = by_hand.exact().await;
        let mut written = false;
        for (id, expected) in [
            ("waiting", CancelOutcome::Cancelled),
            ("delayed", CancelOutcome::Cancelled),
            ("running", CancelOutcome::Requested),
        ] {
            match task.handle(id).unwrap().cancel("why").await {
                Ok(outcome) => {
                    assert_eq!(outcome, expected, "{id} next to a foreign {key}");
                    written = true;
                }
                Err(error) => {
                    assert!(is_wrong_type(&error, "cancel"), "{id} next to a foreign {key}: {error:?}");
                    assert!(!ANNOUNCEMENTS.contains(&key), "{key}");
                }
            }
        }
        if !written {
            assert_eq!(by_hand.exact().await, before, "{key}");
        }
    }
}

#[tokio::test]
async fn reading_next_to_a_foreign_key_is_a_typed_error() {
    let (_, _, sample) = task().await;
    for key in suffixes(&sample, "states") {
        let (_app, task, mut by_hand) = task().await;
        by_hand.waiting(&["a"]).await;
        by_hand.make_foreign(key).await;
        let before = by_hand.exact().await;
        if ["result", "finalizing"].contains(&key) {
            // These keys are read for the size of a value and for jobs with an outcome, and here are none.
            assert_eq!(task.handle("a").unwrap().state().await.unwrap(), JobState::Waiting);
            continue;
        }
        let error = task.handle("a").unwrap().state().await.unwrap_err();
        assert!(is_wrong_type(&error, "states"), "{key}: {error:?}");
        let error = task.handle("a").unwrap().result().await.unwrap_err();
        assert!(is_wrong_type(&error, "states"), "{key}: {error:?}");
        assert_eq!(by_hand.exact().await, before);
    }
}

#[tokio::test]
async fn a_worker_logs_why_its_settle_is_refused_and_recovers() {
    let warnings = Warnings::capture();
    let (app, _, mut by_hand) = task().await;
    let handler = async |_: heartline::Context, _: u32| Ok::<_, heartline::JobError>(());
    let task = app.task("task", heartline::TaskOptions::new(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    by_hand.make_foreign("result").await;
    let job = task.dispatch(1).await.unwrap();
    warnings.wait_for(&["redis refuses a call", "WRONGTYPE"], PATIENCE).await;
    by_hand.del("result").await;
    job.result().await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_keeps_its_jobs_next_to_a_foreign_calls_key() {
    let (app, _, mut by_hand) = task().await;
    let handler =
        async |_: heartline::Context, _: u32| -> Result<(), heartline::JobError> { std::future::pending().await };
    let grace = Duration::from_millis(50);
    let options = heartline::TaskOptions::new().stall(stall(1)).shutdown_grace(Duration::ZERO).cancel_grace(grace);
    let task = app.task("task", options, handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let held = task.dispatch(1).await.unwrap();
    eventually("it runs", PATIENCE, async || held.state().await.unwrap() == JobState::Running).await;
    by_hand.make_foreign("replies").await;
    // The claim for this job is refused and repeated, so the keeper asks what it was given.
    let second = task.dispatch(2).await.unwrap();
    let epoch = by_hand.epoch().await;
    eventually("three epochs pass", PATIENCE, async || by_hand.epoch().await >= epoch + 3).await;
    assert_eq!(held.state().await.unwrap(), JobState::Running);
    assert_eq!(by_hand.held("stalls").await, "");
    by_hand.del("replies").await;
    eventually("the claim is answered", PATIENCE, async || second.state().await.unwrap() == JobState::Running).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_does_not_start_next_to_a_foreign_meta_key() {
    let (app, _, mut by_hand) = task().await;
    app.task("task", heartline::TaskOptions::new(), async |_: heartline::Context, _: u32| {
        Ok::<_, heartline::JobError>(())
    })
    .unwrap();
    by_hand.make_foreign("meta").await;
    let before = by_hand.exact().await;
    let error = app.worker().run_until(std::future::pending()).await.unwrap_err();
    assert!(is_wrong_type(&error, "declare"), "{error:?}");
    assert_eq!(by_hand.exact().await, before);
}
