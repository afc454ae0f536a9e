//! What the run behind a crash knows, and what a task does with a crash.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    Context, Event, JobError, JobState, JobValues, OnCrash, Recovery, RetryPolicy, StallAction, StallOptions,
    StallReason, TaskOptions,
};

use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{INTERVAL, TASK, TestTask, fast, fast_with};
use crate::support::{PATIENCE, eventually};

type Told = Arc<Mutex<Vec<(u32, u32, Option<Recovery>)>>>;

/// A handler that writes down as what it was run.
fn recorder(told: &Told) -> impl Fn(Context) -> Result<u64, JobError> + Send + Sync + 'static {
    let told = Arc::clone(told);
    move |ctx| {
        told.lock().unwrap().push((ctx.attempt(), ctx.stalled_count(), ctx.recovery().cloned()));
        Ok(1)
    }
}

/// Lets a worker that is dead hold the job, then works the task.
async fn crash(options: TaskOptions) -> (TestTask, Told, crate::support::task::TaskWorker, String) {
    let test = TestTask::new();
    let (_app, task) = test.producer().await;
    task.dispatch("x".into()).id("a").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["a"]).await;
    let told = Told::default();
    let run = recorder(&told);
    let url = test.redis().url();
    let worker = test.start_worker_with(&url, options, move |_, ctx, _| std::future::ready(run(ctx))).await;
    let name = dead.name.clone();
    (test, told, worker, name)
}

#[tokio::test]
async fn a_run_behind_a_crash_is_told_why_it_runs_and_of_whom() {
    let (test, told, worker, dead) = crash(fast()).await;
    assert_eq!(worker.jobs.handle("a").unwrap().result().await.unwrap(), 1);
    let (attempt, stalled_count, recovery) = told.lock().unwrap()[0].clone();
    let recovery = recovery.unwrap();
    assert_eq!((attempt, stalled_count, recovery.stalled_count), (1, 1, 1));
    assert_eq!((recovery.reason, recovery.worker.unwrap().as_str()), (StallReason::Silent, dead.as_str()));
    assert!(recovery.at.elapsed().unwrap() < PATIENCE);
    // It stays with the job, for people.
    let job = worker.app.inspector().job(TASK, "a", JobValues::None).await.unwrap().unwrap();
    assert_eq!(job.recovery.unwrap().at, recovery.at);
    // Another job was never recovered.
    worker.jobs.dispatch("x".into()).await.unwrap().result().await.unwrap();
    assert_eq!(told.lock().unwrap()[1], (1, 0, None));
    worker.stop().await;
    drop(test);
}

#[tokio::test]
async fn a_crash_may_be_a_failed_run_that_waits_by_the_policy() {
    let stall = StallOptions::new().interval(INTERVAL).on_crash(OnCrash::Retry);
    let policy = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(300));
    let (test, told, worker, _) = crash(fast_with(stall).retry(policy)).await;
    let mut events = worker.app.events();
    let mut stalls = worker.app.on_stalled();
    assert_eq!(next(&mut stalls).await.action, StallAction::Retrying);
    let delay = loop {
        if let Event::Retrying { delay, failed_attempts, code, ran, .. } = next(&mut events).await {
            assert_eq!((failed_attempts, code.as_str(), ran), (1, "worker_crashed", None));
            break delay;
        }
    };
    assert!((300..=600).contains(&delay.as_millis()), "{delay:?}");
    assert_eq!(worker.jobs.handle("a").unwrap().result().await.unwrap(), 1);
    let (attempt, stalled_count, recovery) = told.lock().unwrap()[0].clone();
    assert_eq!((attempt, stalled_count, recovery.unwrap().reason), (2, 1, StallReason::Silent));
    worker.stop().await;
    drop(test);
}

#[tokio::test]
async fn a_crash_may_be_final_and_its_error_says_so() {
    let stall = StallOptions::new().interval(INTERVAL).max_count(9).on_crash(OnCrash::Fail);
    let (_test, told, worker, dead) = crash(fast_with(stall)).await;
    let inspector = worker.app.inspector();
    let failed = async || {
        let job = inspector.job(TASK, "a", JobValues::None).await.unwrap().unwrap();
        (job.state == JobState::Failed).then_some(job)
    };
    let job = eventually("it fails", PATIENCE, failed).await;
    let error = job.error.unwrap();
    assert_eq!((error.code.as_str(), error.stalled_count, told.lock().unwrap().len()), ("worker_crashed", 1, 0));
    assert!(
        error.message.contains(&dead) && error.message.contains("the task lets such a job fail"),
        "{}",
        error.message
    );
    worker.stop().await;
}

/// Of the codes that are not named a run fails its job at once, and so it does with a dispatch that names others.
#[tokio::test]
async fn only_failures_with_a_named_code_are_retried() {
    let test = TestTask::new();
    let policy = RetryPolicy::new().attempts(2).fixed(Duration::ZERO);
    let url = test.redis().url();
    let handler = |journal: Arc<crate::support::journal::Journal>, ctx: Context, input: String| async move {
        journal.begin(&ctx);
        match input.as_str() {
            "panic" => panic!("boom"),
            "plain" => Err(JobError::new("plain")),
            "slow" => {
                ctx.cancelled().await;
                Err("late".into())
            }
            code => Err(JobError::new("own").with_code(code).retry_after(Duration::from_millis(1))),
        }
    };
    let options = fast().timeout(Duration::from_millis(200)).retry(policy.clone().on(&["timeout", "busy"]));
    let worker = test.start_worker_with(&url, options, handler).await;
    let runs = async |input: &str, own: Option<RetryPolicy>| {
        let mut dispatch = worker.jobs.dispatch(input.to_owned());
        if let Some(own) = own {
            dispatch = dispatch.retry(own);
        }
        let job = dispatch.await.unwrap();
        assert!(job.result().await.is_err());
        test.journal.runs_of(job.id()).len()
    };
    for (input, expected) in [("busy", 2), ("slow", 2), ("gone", 1), ("plain", 1), ("panic", 1)] {
        assert_eq!(runs(input, None).await, expected, "{input}");
    }
    let own = policy.clone().on(&["panic", "handler_error"]);
    for (input, expected) in [("busy", 1), ("slow", 1), ("plain", 2), ("panic", 2)] {
        assert_eq!(runs(input, Some(own.clone())).await, expected, "{input} by its own policy");
    }
    // A policy without codes retries all.
    assert_eq!(runs("gone", Some(policy)).await, 2);
    worker.stop().await;
}

#[tokio::test]
async fn codes_that_cannot_be_retried_are_refused_each_with_its_reason() {
    let test = TestTask::new();
    let app = test.app().await;
    let policy = RetryPolicy::new().on(&["timeout", "worker_crashed", "codec", "Bad Code", "mine_2"]);
    let error = app.task(TASK, fast().retry(policy.clone()), |_, (): ()| async { Ok::<_, JobError>(()) }).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("on_crash") && text.contains("it is final") && text.contains("JobError::with_code"),
        "{text}"
    );
    assert_eq!(text.matches("retry.on").count(), 3, "{text}");
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    assert!(task.dispatch("x".into()).retry(policy).await.is_err());
    assert!(task.dispatch("x".into()).retry(RetryPolicy::new().on(&[])).await.is_err());
}
