//! What the run after a crash knows, and what a task does about a crash.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    Context, Event, JobError, JobState, JobValues, OnCrash, Recovery, RetryPolicy, StallAction, StallOptions,
    StallReason, TaskOptions, WorkerIdentity,
};

use crate::integration::fixtures::{producing, shared};
use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{INTERVAL, TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

type Told = Arc<Mutex<Vec<(u32, u32, Option<Recovery>)>>>;

/// A handler that records how it was run.
fn recorder(told: &Told) -> impl Fn(Context) -> Result<u64, JobError> + Send + Sync + 'static {
    let told = Arc::clone(told);
    move |ctx| {
        told.lock().unwrap().push((ctx.attempt(), ctx.stalled_count(), ctx.recovery().cloned()));
        Ok(1)
    }
}

/// Lets a dead worker hold the job, then runs the task.
async fn crash(options: TaskOptions) -> (TestTask, Told, crate::support::task::TaskWorker, String) {
    let (test, _app, task) = producing().await;
    task.dispatch("x".into()).id("a").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["a"]).await;
    let told = Told::default();
    let run = recorder(&told);
    let url = test.redis().app_url();
    let worker = test.start_worker_with(&url, options, move |_, ctx, _| std::future::ready(run(ctx))).await;
    let name = dead.name.clone();
    (test, told, worker, name)
}

#[tokio::test]
async fn a_run_after_a_crash_sees_why_it_runs_and_the_lost_worker() {
    let (test, told, worker, dead) = crash(fast()).await;
    assert_eq!(worker.jobs.handle("a").unwrap().result().await.unwrap(), 1);
    let (attempt, stalled_count, recovery) = told.lock().unwrap()[0].clone();
    let recovery = recovery.unwrap();
    assert_eq!((attempt, stalled_count, recovery.stalled_count), (1, 1, 1));
    assert_eq!((recovery.reason, recovery.worker.unwrap().as_str()), (StallReason::Silent, dead.as_str()));
    assert!(recovery.at.elapsed().unwrap() < PATIENCE);
    // The record stays with the job.
    let job = worker.app.inspector().job(TASK, "a", JobValues::None).await.unwrap().unwrap();
    assert_eq!(job.recovery.unwrap().at, recovery.at);
    // This job was never recovered.
    worker.jobs.dispatch("x".into()).await.unwrap().result().await.unwrap();
    assert_eq!(told.lock().unwrap()[1], (1, 0, None));
    worker.stop().await;
    drop(test);
}

#[tokio::test]
async fn a_crash_may_count_as_a_failed_run_with_the_retry_policy() {
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
async fn a_crash_may_be_final_and_its_error_reports_it() {
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

/// A code that is not listed fails its job at once, also in a dispatch that lists other codes.
#[tokio::test]
async fn only_failures_with_a_listed_code_are_retried() {
    let test = TestTask::new();
    let policy = RetryPolicy::new().attempts(2).fixed(Duration::ZERO);
    let url = test.redis().app_url();
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
    // A policy without codes retries all of them.
    assert_eq!(runs("gone", Some(policy)).await, 2);
    worker.stop().await;
}

#[tokio::test]
async fn codes_that_cannot_be_retried_are_refused_with_a_reason() {
    let (_test, app) = shared().await;
    let policy = RetryPolicy::new().on(&["timeout", "worker_crashed", "codec", "Bad Code", "mine_2"]);
    let error = app.task(TASK, fast().retry(policy.clone()), |_, (): ()| async { Ok::<_, JobError>(()) }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("on_crash") && text.contains("is final") && text.contains("JobError::with_code"), "{text}");
    assert_eq!(text.matches("retry.on").count(), 3, "{text}");
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    assert!(task.dispatch("x".into()).retry(policy).await.is_err());
    assert!(task.dispatch("x".into()).retry(RetryPolicy::new().on(&[])).await.is_err());
}

/// A dead worker that had handled our task and another one, whose keys are not ours.
async fn predecessor(test: &TestTask, id: &str) -> redis::aio::MultiplexedConnection {
    let (_app, task) = test.producer().await;
    task.dispatch("gate".into()).id("held").await.unwrap();
    test.journal.open("gate");
    let mut puppet = Puppet::of(test).await;
    puppet.name = id.to_owned();
    puppet.claim_all(&["held"]).await;
    let mut conn = test.conn().await;
    let prefix = &test.prefix;
    let tasks = format!("foreign {TASK}");
    let presence = [("lastSeenAt", "5"), ("tasks", tasks.as_str()), ("pid", "1")];
    redis::cmd("HSET").arg(format!("{prefix}:worker:{id}")).arg(&presence).exec_async(&mut conn).await.unwrap();
    redis::cmd("SET").arg(format!("{prefix}:{{foreign}}:replies")).arg("x").exec_async(&mut conn).await.unwrap();
    conn
}

#[tokio::test]
async fn a_damaged_task_of_a_dead_worker_does_not_block_its_name() {
    let test = TestTask::new();
    let mut conn = predecessor(&test, "old-1-00000000").await;
    let name = format!("{}:name:billing-0", test.prefix);
    redis::cmd("ZADD").arg(&name).arg(5).arg("old-1-00000000").exec_async(&mut conn).await.unwrap();
    let app = test.app().await;
    let task = test.declare_at(&app, fast_with(StallOptions::new().interval(INTERVAL * 3600)));
    let worker = app.worker().identity(WorkerIdentity::exclusive("billing-0"));
    let id = worker.id().to_string();
    let worker = TestWorker::start(worker);
    task.handle("held").unwrap().result().await.unwrap();
    let holders: Vec<String> = redis::cmd("ZRANGE").arg(&name).arg(0).arg(-1).query_async(&mut conn).await.unwrap();
    assert_eq!(holders, [id]);
    worker.stop().await;
}

#[tokio::test]
async fn declaring_a_worker_dead_covers_tasks_next_to_a_damaged_one() {
    let test = TestTask::new();
    drop(predecessor(&test, "old-1-00000000").await);
    let worker = test.start_worker(fast_with(StallOptions::new().interval(INTERVAL * 3600))).await;
    let report = worker.app.inspector().recover_worker("old-1-00000000").await.unwrap().unwrap();
    let told: Vec<(&str, usize, bool)> =
        report.tasks.iter().map(|task| (&*task.task, task.resolved.len(), task.fault.is_some())).collect();
    assert_eq!(told, [("foreign", 0, true), (TASK, 1, false)]);
    worker.jobs.handle("held").unwrap().result().await.unwrap();
    worker.stop().await;
}

/// Copies the record of a live worker to that of a dead one, with these differences.
#[cfg(target_os = "linux")]
async fn dead_like(test: &TestTask, live: &str, id: &str, differs: &[(&str, &str)]) {
    let mut conn = test.conn().await;
    let key = |id: &str| format!("{}:worker:{id}", test.prefix);
    let said: Vec<(String, String)> = redis::cmd("HGETALL").arg(key(live)).query_async(&mut conn).await.unwrap();
    let boot = said.iter().find(|(name, _)| name == "bootId").unwrap().1.clone();
    redis::cmd("HSET").arg(key(id)).arg(&said).exec_async(&mut conn).await.unwrap();
    let dead: Vec<_> = [("pid", "2000000000")].iter().chain(differs).copied().collect();
    redis::cmd("HSET").arg(key(id)).arg(&dead).exec_async(&mut conn).await.unwrap();
    redis::cmd("ZADD").arg(format!("{}:boot:{boot}", test.prefix)).arg(5).arg(id).exec_async(&mut conn).await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_death_is_proven_although_the_last_heartbeat_was_late() {
    let test = TestTask::new();
    let first = test.start_worker(fast()).await;
    dead_like(&test, &first.id, "late-1-00000000", &[("bootClock", "1")]).await;
    let second = test.start_worker(fast()).await;
    let inspector = second.app.inspector();
    eventually("its death is recorded", PATIENCE, async || {
        inspector.worker("late-1-00000000").await.unwrap().is_some_and(|worker| worker.death.is_some())
    })
    .await;
    first.stop().await;
    second.stop().await;
}

/// Only dead workers of this host that handled our task are recovered, without a trace of the others.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dead_worker_of_another_task_leaves_nothing_in_ours() {
    let test = TestTask::new();
    let first = test.start_worker(fast()).await;
    for (id, tasks) in [("other-1-00000000", "other"), ("ours-1-00000000", TASK)] {
        dead_like(&test, &first.id, id, &[("tasks", tasks)]).await;
    }
    let second = test.start_worker(fast()).await;
    let inspector = second.app.inspector();
    for id in ["ours-1-00000000", "other-1-00000000"] {
        eventually("its death is recorded", PATIENCE, async || {
            inspector.worker(id).await.unwrap().is_some_and(|worker| worker.death.is_some())
        })
        .await;
    }
    let lines: Vec<String> = test.run("HKEYS", "replies", &[]).await;
    assert!(lines.iter().any(|line| line.starts_with("ours-")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("other-")), "{lines:?}");
    first.stop().await;
    second.stop().await;
}
