//! Jobs that wait without using an attempt: their handler snoozes, or their payload is of another version.

use crate::integration::fixtures::{producing, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{Context, Error, Event, JobError, JobState, JobValues, RetryPolicy, TaskRef, codes};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
#[error("too many requests")]
struct Limited;

#[tokio::test]
async fn a_snoozed_job_runs_later_with_no_attempt_used_and_no_error() {
    let (_test, app) = shared().await;
    let task: TaskRef<u32, (u32, u32)> = app
        .task(TASK, fast().concurrency(1), |ctx: Context, times: u32| async move {
            if ctx.snoozed_count() < times {
                return Err(JobError::snooze(Duration::from_millis(20)));
            }
            Ok((ctx.attempt(), ctx.snoozed_count()))
        })
        .unwrap();
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(3).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), (1, 3));
    let stored = task.job(job.id()).await.unwrap();
    assert_eq!((stored.failed_attempts, stored.stalled_count, stored.snoozed_count, stored.error), (0, 0, 3, None));
    let mut seen = Vec::new();
    while seen.last().is_none_or(|name| *name != "task:completed") {
        let event = next(&mut events).await;
        if let Event::Snoozed { snoozed_count, delay, .. } = &event {
            assert_eq!((*snoozed_count as usize, *delay), (seen.len() / 2, Duration::from_millis(20)));
        }
        seen.push(event.name());
    }
    let turn = ["task:started", "task:snoozed"];
    assert_eq!(seen, [&["task:dispatched"][..], &turn, &turn, &turn, &["task:started", "task:completed"]].concat());
    worker.stop().await;
}

#[tokio::test]
async fn a_custom_error_can_be_a_snooze_that_uses_no_attempt() {
    let test = TestTask::new();
    let app = heartline::App::builder()
        .redis(test.redis().app_url())
        .prefix(&test.prefix)
        .on_error::<Limited>(|_, _| JobError::snooze(Duration::from_millis(5)))
        .build()
        .await
        .unwrap();
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1));
    let task: TaskRef<(), u32> = app
        .task(TASK, fast().retry(retry), |ctx: Context, (): ()| async move {
            match (ctx.snoozed_count(), ctx.attempt()) {
                (0..5, _) => Err(JobError::new(Limited)),
                (_, 1) => Err("a failure".into()),
                (snoozed, _) => Ok(snoozed),
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let jobs = task.dispatch_many([(); 20]).await.unwrap();
    for job in jobs {
        assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 5);
        let stored = task.job(job.id()).await.unwrap();
        assert_eq!((stored.failed_attempts, stored.snoozed_count), (1, 5));
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_payload_of_another_version_waits_and_uses_no_attempt() {
    let test = TestTask::new();
    let (old, new) = (test.app().await, test.app().await);
    let old_task: TaskRef<u32, u32> = old.task(TASK, fast(), |_, n: u32| async move { Ok::<_, JobError>(n) }).unwrap();
    let worker = TestWorker::start(old.worker());
    let producer = test.app().await.task_ref::<Value, Value>(TASK).unwrap();
    let mut events = old.events();
    let job = producer.dispatch(json!({ "n": 7 })).await.unwrap();
    test.arrives(job.id().as_str(), "delayed").await;
    let stored = producer.job(job.id()).await.unwrap();
    let error = stored.error.unwrap();
    assert_eq!((stored.failed_attempts, error.code.as_str()), (0, codes::CODEC));
    assert!(error.message.contains("expected u32"), "{error}");
    let put_off = loop {
        if let Event::Undecodable { undecodable_count: count, delay, .. } = next(&mut events).await {
            break (count, delay);
        }
    };
    assert_eq!(put_off, (1, Duration::from_secs(10)));
    // Other jobs run meanwhile.
    assert_eq!(old_task.dispatch(3).await.unwrap().result().await.unwrap(), 3);
    worker.stop().await;

    // The new workers start, and the delay ends.
    #[derive(serde::Deserialize)]
    struct New {
        n: u32,
    }
    new.task(TASK, fast(), |_, New { n }: New| async move { Ok::<_, JobError>(n) }).unwrap();
    let worker = TestWorker::start(new.worker());
    test.run::<u64>("ZADD", "delayed", &["1", job.id().as_str()]).await;
    // A worker with free slots claims when the next known job is due, and otherwise every 5 s.
    assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), json!(7));
    assert_eq!(
        producer.job(job.id()).await.unwrap().error,
        None,
        "what was wrong before is no error of a completed job"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_payload_that_stays_unreadable_fails_after_its_time() {
    let (test, app) = shared().await;
    let options = fast().undecodable_for(Duration::from_millis(300));
    app.task(TASK, options, |_, n: u32| async move { Ok::<_, JobError>(n) }).unwrap();
    let worker = TestWorker::start(app.worker());
    let producer = test.app().await.task_ref::<Value, Value>(TASK).unwrap();
    let job = producer.dispatch(json!("seven")).attempts(9).await.unwrap();
    match tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap_err() {
        heartline::Error::JobFailed(failure) => {
            assert_eq!((failure.code.as_str(), failure.failed_attempts), (codes::CODEC, 1), "{failure}");
        }
        other => panic!("{other}"),
    }
    eventually("nothing of the put-off is left when the job is removed", PATIENCE, async || {
        test.places(job.id().as_str()).await == ["failed"]
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_does_not_begin_in_time_fails_as_expired() {
    let (test, app, task) = producing().await;
    let short = Duration::from_millis(300);
    let late = task.dispatch("gate".into()).expires_after(short).await.unwrap();
    let delayed = task.dispatch("gate".into()).delay(Duration::from_millis(1)).expires_after(short).await.unwrap();
    let job = app.inspector().job(TASK, late.id().as_str(), JobValues::None).await.unwrap().unwrap();
    let left = job.expires_at.unwrap().duration_since(job.dispatched_at.unwrap()).unwrap();
    assert!((250..400).contains(&left.as_millis()), "{left:?}");
    eventually("its time is over", PATIENCE, async || {
        job.expires_at.unwrap().elapsed().is_ok_and(|over| over > Duration::from_millis(5))
    })
    .await;
    let worker = test.start_worker(fast()).await;
    for handle in [&late, &delayed] {
        let Err(Error::JobFailed(failure)) = handle.result().await else { panic!("it did not fail") };
        assert_eq!((failure.code.as_str(), failure.failed_attempts), ("expired", 0));
    }
    // It begins in time and runs longer.
    let began = worker.jobs.dispatch("other gate".into()).expires_after(Duration::from_secs(20)).await.unwrap();
    test.started(std::slice::from_ref(&began)).await;
    let job = app.inspector().job(TASK, began.id().as_str(), JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.state, job.expires_at), (JobState::Running, None));
    test.journal.open("other gate");
    began.result().await.unwrap();
    // It also expires without a free slot, and in a paused task.
    app.inspector().pause(TASK, "maintenance").await.unwrap();
    let paused = worker.jobs.dispatch("gate".into()).expires_after(short).await.unwrap();
    let Err(Error::JobFailed(failure)) = paused.result().await else { panic!("it did not fail") };
    assert_eq!(failure.code, "expired");
    assert!(test.journal.runs_of(paused.id()).is_empty() && test.journal.runs_of(late.id()).is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_job_needs_time_to_begin() {
    let (_test, _app, task) = producing().await;
    let minute = Duration::from_secs(60);
    assert!(task.dispatch("x".into()).expires_after(Duration::ZERO).await.is_err());
    assert!(task.dispatch("x".into()).expires_after(Duration::MAX).await.is_err());
    let error = task.dispatch("x".into()).delay(minute).expires_after(minute).await.unwrap_err();
    assert!(error.to_string().contains("expires_after is 60s: it must be more than the delay"), "{error}");
}
