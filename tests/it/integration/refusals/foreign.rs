//! A value of another type under each key of a task in turn, through the public API.

use super::shutdown::stall;
use crate::scripts::call::Task;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, Warnings, eventually};
use heartline::{App, Error, JobState, TaskRef};
use std::time::Duration;

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
