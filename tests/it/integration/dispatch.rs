//! Dispatch: order, priority, delay, existing ids.

use crate::integration::fixtures::shared;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{App, JobState, Priority, TaskOptions, TaskRef};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// A task with one slot that records the inputs in the order of the runs.
fn ordered(app: &App, options: TaskOptions) -> (TaskRef<String, ()>, Arc<Mutex<Vec<String>>>) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = order.clone();
    let task = app.task(TASK, options.concurrency(1), move |_, input: String| {
        log.lock().unwrap().push(input);
        async { Ok::<_, heartline::JobError>(()) }
    });
    (task.unwrap(), order)
}

#[tokio::test]
async fn jobs_run_by_priority_and_then_in_dispatch_order() {
    let (_test, app) = shared().await;
    let (task, order) = ordered(&app, fast());
    for (input, priority) in [
        ("low 1", Priority::Low),
        ("normal 1", Priority::Normal),
        ("high 1", Priority::High),
        ("low 2", Priority::Low),
        ("high 2", Priority::High),
        ("normal 2", Priority::Normal),
    ] {
        task.dispatch(input.into()).priority(priority).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 6).await;
    assert_eq!(*order.lock().unwrap(), ["high 1", "high 2", "normal 1", "normal 2", "low 1", "low 2"]);
    worker.stop().await;
}

#[tokio::test]
async fn the_priority_of_the_task_is_a_default_that_outlasts_a_delay() {
    let (test, app) = shared().await;
    let (task, order) = ordered(&app, fast().priority(Priority::Low));
    task.dispatch("default".into()).id("default").await.unwrap();
    task.dispatch("normal".into()).priority(Priority::Normal).await.unwrap();
    task.dispatch("high".into()).id("high").priority(Priority::High).delay(Duration::from_millis(1)).await.unwrap();
    assert_eq!(test.places("default").await, ["wait:low"]);
    assert_eq!(test.places("high").await, ["delayed"]);
    let worker = TestWorker::start(app.worker());
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 3).await;
    assert_eq!(*order.lock().unwrap(), ["high", "normal", "default"]);
    worker.stop().await;
}

#[tokio::test]
async fn jobs_get_the_task_priority_from_any_producer() {
    let test = TestTask::new();
    let producer = test.app().await.task_ref::<String, ()>(TASK).unwrap();
    let before = producer.dispatch("before".into()).await.unwrap();
    let app = test.app().await;
    let (task, _) = ordered(&app, fast().priority(Priority::High));
    let worker = TestWorker::start(app.worker());
    eventually("it has run", PATIENCE, async || task.counts().await.unwrap().completed == 1).await;
    worker.stop().await;
    assert_eq!(before.existed(), Some(false));
    for input in ["one", "two"] {
        let handle = producer.dispatch(input.into()).await.unwrap();
        assert_eq!(handle.existed(), Some(false));
        assert_eq!(test.places(handle.id().as_str()).await, ["wait:high"]);
    }
    for handle in producer.dispatch_many(["three", "four"].map(String::from)).await.unwrap() {
        assert_eq!(test.places(handle.id().as_str()).await, ["wait:high"]);
    }
}

#[tokio::test]
async fn a_delayed_job_waits_and_then_wakes_an_idle_worker() {
    let (test, app) = shared().await;
    let (task, order) = ordered(&app, fast());
    let worker = TestWorker::start(app.worker());
    eventually("it idles", PATIENCE, async || test.epoch().await > 0).await;
    let begun = Instant::now();
    let late = task.dispatch("late".into()).delay(Duration::from_millis(700)).await.unwrap();
    let soon = task.dispatch("soon".into()).delay(Duration::from_millis(200)).await.unwrap();
    assert_eq!(late.state().await.unwrap(), JobState::Delayed);
    assert_eq!(task.counts().await.unwrap().delayed, 2);
    soon.result().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(199));
    late.result().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(699));
    // Without a wake marker the worker would claim only after 5 s.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(*order.lock().unwrap(), ["soon", "late"]);
    worker.stop().await;
}

#[tokio::test]
async fn dispatch_many_returns_handles_in_order_and_is_repeatable() {
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast().concurrency(100), |_, input: u32| async move { Ok::<_, heartline::JobError>(input * 2) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let jobs = (0..1234).map(|input| (format!("job-{input}"), input));
    let handles = task.dispatch_many_with_ids(jobs.clone()).await.unwrap();
    for (input, handle) in (0..).zip(&handles) {
        assert_eq!((handle.id().to_string(), handle.existed()), (format!("job-{input}"), Some(false)));
        assert_eq!(handle.result().await.unwrap(), input * 2);
    }
    let again = task.dispatch_many_with_ids(jobs).await.unwrap();
    assert!(again.iter().all(|handle| handle.existed() == Some(true)) && again.len() == 1234);
    assert_eq!(task.counts().await.unwrap().completed, 1234);
    worker.stop().await;
}

#[tokio::test]
async fn concurrent_dispatches_share_calls_and_get_their_own_replies() {
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast().concurrency(100), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let mut calls = tokio::task::JoinSet::new();
    for input in 0..500 {
        let task = task.clone();
        calls.spawn(async move {
            let handle = task.dispatch(input).id(format!("job-{}", input / 2)).await.unwrap();
            (input / 2, handle.existed(), handle.result().await.unwrap() / 2)
        });
    }
    let (mut existed, mut done) = (0, 0);
    while let Some(answer) = calls.join_next().await {
        let (job, was_there, value) = answer.unwrap();
        assert_eq!(job, value);
        existed += usize::from(was_there == Some(true));
        done += 1;
    }
    assert_eq!((done, existed), (500, 250));
    worker.stop().await;
}

#[tokio::test]
async fn the_handler_sees_when_its_job_was_dispatched() {
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast(), |ctx, _: u32| async move {
            let at = ctx.dispatched_at().duration_since(SystemTime::UNIX_EPOCH)?;
            Ok::<_, heartline::JobError>((
                ctx.id().to_string(),
                ctx.task().to_owned(),
                at.as_millis() as u64,
                ctx.worker_id().to_string(),
            ))
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let before = now();
    for job in [task.dispatch(0).id("own"), task.dispatch(0)] {
        let job = job.await.unwrap();
        let (id, name, at, holder) = job.result().await.unwrap();
        assert_eq!((id, name.as_str(), holder), (job.id().to_string(), TASK, worker.id.clone()));
        assert!((before..=now()).contains(&at), "{before} {at}");
    }
    worker.stop().await;
}
