//! Unique jobs through the public API.

use std::time::Duration;

use heartline::_internals::Timings;
use heartline::{
    App, Event, JobError, JobId, JobReport, JobState, JobValues, Placed, RefusalReason, TaskOptions, TaskRef, Unique,
    UniqueMode,
};

use crate::integration::fixtures::{producing, shared};
use crate::support::task::{TASK, TestTask, counts, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

const HOUR: Duration = Duration::from_secs(3600);

/// A job with its values.
async fn job_of(app: &App, id: &JobId) -> JobReport {
    app.inspector().job(TASK, id.as_str(), JobValues::Small).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_second_dispatch_leads_to_the_job_that_has_the_key() {
    let (_test, app, task) = producing().await;
    let first = task.dispatch("one".into()).unique(Unique::by("order-7")).await.unwrap();
    assert_eq!((first.existed(), first.placed()), (Some(false), Some(Placed::New)));
    let again = task.dispatch("two".into()).unique(Unique::by("order-7")).await.unwrap();
    assert_eq!((again.existed(), again.placed(), again.id()), (Some(true), Some(Placed::Existed), first.id()));
    let other = task.dispatch("one".into()).unique(Unique::by("order-8")).await.unwrap();
    assert_ne!(other.id(), first.id());
    assert_eq!(job_of(&app, first.id()).await.payload, Some("one".into()));
    let plain = task.dispatch("plain".into()).await.unwrap();
    assert_eq!(plain.placed(), Some(Placed::New));
    assert_eq!(task.handle(first.id()).unwrap().placed(), None);
    assert_eq!(task.counts().await.unwrap().waiting, 3);
}

#[tokio::test]
async fn a_key_by_the_input_is_free_once_its_job_has_ended() {
    let (_test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, JobError>(input) }).unwrap();
    let first = task.dispatch(7).unique(Unique::by_input()).await.unwrap();
    assert_eq!(task.dispatch(7).unique(Unique::by_input()).await.unwrap().id(), first.id());
    assert_ne!(task.dispatch(8).unique(Unique::by_input()).await.unwrap().id(), first.id());
    let worker = TestWorker::start(app.worker());
    assert_eq!(first.result().await.unwrap(), 7);
    let second = task.dispatch(7).unique(Unique::by_input()).await.unwrap();
    assert_eq!(second.placed(), Some(Placed::New));
    assert_eq!(second.result().await.unwrap(), 7);
    worker.stop().await;
}

#[tokio::test]
async fn the_newest_input_replaces_that_of_the_waiting_job() {
    let (_test, app, task) = producing().await;
    let mut events = task.events();
    let replace = || Unique::by("k").replace();
    let first = task.dispatch("one".into()).unique(replace()).await.unwrap();
    let second = task.dispatch("two".into()).unique(replace()).header("from", "two").await.unwrap();
    assert_eq!((second.placed(), second.id()), (Some(Placed::Replaced), first.id()));
    let job = job_of(&app, first.id()).await;
    assert_eq!((job.payload, job.unique_key.as_deref()), (Some("two".into()), Some("k")));
    assert_eq!(job.options.headers["from"], "two");
    let replaced = async { while !matches!(events.recv().await.unwrap(), Event::Replaced { .. }) {} };
    tokio::time::timeout(PATIENCE, replaced).await.unwrap();
}

#[tokio::test]
async fn each_dispatch_postpones_a_debounced_job() {
    let (_test, app, task) = producing().await;
    let debounce = || Unique::by("k").debounce(HOUR).at_most(2 * HOUR);
    let first = task.dispatch("one".into()).unique(debounce()).await.unwrap();
    let due = async || job_of(&app, first.id()).await.due_at.unwrap();
    let before = due().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = task.dispatch("two".into()).unique(debounce()).await.unwrap();
    assert_eq!((second.placed(), second.id()), (Some(Placed::Postponed), first.id()));
    assert!(due().await > before);
    let entry = app.inspector().unique(TASK, "k").await.unwrap().unwrap();
    assert_eq!((&entry.job, entry.state, entry.mode), (first.id(), Some(JobState::Delayed), UniqueMode::Done));
    assert!(entry.is_taken && entry.until.unwrap() > before, "{entry:?}");
    assert_eq!(app.inspector().unique(TASK, "other").await.unwrap(), None);
}

#[tokio::test]
async fn a_claimed_job_that_is_replaced_never_runs() {
    let (test, app, task) = producing().await;
    let worker = test.start_worker(fast().concurrency(1).prefetch(1)).await;
    let replace = || Unique::by("k").replace();
    let holds = task.dispatch("gate".into()).await.unwrap();
    counts(&task, 0, 1).await;
    let ahead = task.dispatch("gate".into()).unique(replace()).await.unwrap();
    counts(&task, 1, 1).await;
    let newest = task.dispatch("gate".into()).unique(replace()).await.unwrap();
    assert_eq!(newest.placed(), Some(Placed::Replaced));
    assert_ne!(newest.id(), ahead.id());
    let job = job_of(&app, ahead.id()).await;
    assert_eq!((job.state, &*job.error.unwrap().code), (JobState::Cancelled, "replaced"));
    test.journal.open("gate");
    holds.result().await.unwrap();
    newest.result().await.unwrap();
    assert!(test.journal.runs_of(ahead.id()).is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_retry_of_a_job_whose_key_is_taken_is_refused() {
    let (test, app, task) = producing().await;
    test.declared().await;
    let inspector = app.inspector();
    let first = task.dispatch("one".into()).unique(Unique::by("k")).await.unwrap();
    first.cancel("no more").await.unwrap();
    let second = task.dispatch("two".into()).unique(Unique::by("k")).await.unwrap();
    assert_eq!(second.placed(), Some(Placed::New));
    let report = inspector.retry(TASK, first.id()).await.unwrap();
    assert_eq!((report.done, report.refusals[0].why), (0, RefusalReason::Duplicate));
    assert_eq!(report.refusals[0].key_holder.as_ref(), Some(second.id()));
    assert_eq!(inspector.retry(TASK, first.id()).anyway().await.unwrap().done, 1);
    assert_eq!(task.counts().await.unwrap().waiting, 2);
    assert_eq!(job_of(&app, first.id()).await.unique_key, None);
}

#[tokio::test]
async fn many_dispatches_at_once_with_one_key_write_one_job() {
    let (_test, _app, task) = producing().await;
    let mut calls = tokio::task::JoinSet::new();
    for input in 0..100 {
        let task = task.clone();
        calls.spawn(async move { task.dispatch(input.to_string()).unique(Unique::by("k")).await.unwrap() });
    }
    let jobs = calls.join_all().await;
    assert!(jobs.iter().all(|job| job.id() == jobs[0].id()));
    assert_eq!(jobs.iter().filter(|job| job.placed() == Some(Placed::New)).count(), 1);
    assert_eq!(task.counts().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_large_unique_job_is_written_once() {
    let (_test, app, task) = producing().await;
    let large = "x".repeat(600 * 1024);
    let first = task.dispatch(large.clone()).unique(Unique::by_input()).await.unwrap();
    let again = task.dispatch(large).unique(Unique::by_input()).await.unwrap();
    assert_eq!((again.placed(), again.id()), (Some(Placed::Existed), first.id()));
    let job = app.inspector().job(TASK, first.id().as_str(), JobValues::None).await.unwrap().unwrap();
    let key = job.unique_key.unwrap();
    assert!(key.len() == 23 && key.starts_with('~'), "{key}");
    assert!(app.inspector().unique(TASK, &key).await.unwrap().unwrap().is_taken);
}

#[tokio::test]
async fn wrong_settings_of_a_unique_job_are_refused_before_any_call() {
    let (_test, _app, task) = producing().await;
    for (unique, field) in [
        (Unique::by(""), "unique is "),
        (Unique::by("k").debounce(HOUR).until_started(), "unique is debounce with until_started"),
        (Unique::by("k").within(Duration::ZERO), "unique.within is 0ns"),
        (Unique::by("k").at_most(HOUR), "unique.at_most is 3600s"),
    ] {
        let error = task.dispatch("x".into()).unique(unique).await.unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    let late = task.dispatch("x".into()).unique(Unique::by("k").debounce(HOUR)).expires_after(2 * HOUR).await;
    assert!(late.unwrap_err().to_string().contains("expires_after"));
    assert_eq!(task.counts().await.unwrap().waiting, 0);
}

#[tokio::test]
async fn a_unique_job_is_in_the_partition_of_its_key() {
    let test = TestTask::new();
    let app = test.app().await;
    let options = TaskOptions::new().partitions(7);
    let task: TaskRef<String, u64> = app.task(TASK, options, |_, _: String| async { Ok::<_, JobError>(1) }).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        let first = task.dispatch("one".into()).unique(Unique::by(key)).await.unwrap();
        let again = task.dispatch("two".into()).unique(Unique::by(key)).await.unwrap();
        assert_eq!((again.placed(), again.id()), (Some(Placed::Existed), first.id()), "{key}");
        assert_eq!(again.state().await.unwrap(), JobState::Waiting);
        assert_eq!(&app.inspector().unique(TASK, key).await.unwrap().unwrap().job, first.id());
    }
    // A producer that does not know the number yet.
    let producer = test.app().await.task_ref::<String, u64>(TASK).unwrap();
    let again = producer.dispatch("two".into()).unique(Unique::by("a")).await.unwrap();
    assert_eq!(again.placed(), Some(Placed::Existed));
    let refused = task.dispatch("x".into()).id("own").unique(Unique::by("f")).await.unwrap_err().to_string();
    assert!(refused.starts_with("id is own"), "{refused}");
}

#[tokio::test]
async fn a_worker_removes_the_keys_of_removed_jobs() {
    let test = TestTask::new();
    let timings = Timings { trim_unique: Duration::from_millis(100), ..Timings::default() };
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix).timings(timings).build().await.unwrap();
    let task = app.task(TASK, fast(), |_, _: u32| async { Ok::<_, JobError>(()) }).unwrap();
    let job = task.dispatch(1).delay(HOUR).unique(Unique::by("k")).await.unwrap();
    app.inspector().remove(TASK, job.id()).await.unwrap();
    // As if it was written over a minute ago.
    test.run::<u64>("HSET", "unique", &["k", &format!("{} done 0 1", job.id())]).await;
    let worker = TestWorker::start(app.worker());
    eventually("the keys are gone", PATIENCE, async || {
        let (entry, key) = (test.column("unique", "k").await, test.column("uniqueOf", job.id().as_str()).await);
        entry.is_none() && key.is_none()
    })
    .await;
    worker.stop().await;
}
