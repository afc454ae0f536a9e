//! Failures with prefetched jobs: pauses under a cap, jobs that kill their worker, expiry, cancels, and handlers that
//! wait for jobs claimed after them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heartline::{App, Context, Error, JobError, JobState, OnCrash, RetryPolicy, StallOptions, TaskOptions, TaskRef};

use crate::integration::fixtures::{alone, producing, shared};
use crate::support::task::{TASK, TestTask, counts, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, early_begins, eventually};

#[tokio::test]
async fn a_pause_frees_the_slots_of_jobs_about_to_begin() {
    let (test, app, task) = producing().await;
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        task.dispatch("gate".into()).id(id).await.unwrap();
    }
    let own = test.app().await;
    test.declare_at(&own, fast().concurrency(1).prefetch(2));
    let worker = TestWorker::start(own.worker().max_jobs(1));
    counts(&task, 2, 1).await;
    let inspector = app.inspector();
    inspector.pause(TASK, "a test").await.unwrap();
    test.journal.open("gate");
    task.handle(ids[0]).unwrap().result().await.unwrap();
    counts(&task, 0, 0).await;
    assert_eq!(test.run::<Vec<String>>("LRANGE", "wait", &["0", "-1"]).await, ids[1..]);
    inspector.resume(TASK).await.unwrap();
    for id in ids {
        let ended = tokio::time::timeout(PATIENCE, task.handle(id).unwrap().result()).await;
        let counts = task.counts().await.unwrap();
        ended.unwrap_or_else(|_| panic!("{id} never runs: {counts:?}")).unwrap();
    }
    assert!(test.journal.runs().len() == 4 && test.dump("stalls").await.is_none());
    worker.stop().await;
}

/// Dispatches the poison in the middle of 899 neighbours.
async fn dispatch_poison(task: &TaskRef<String, u64>) {
    let jobs = (0..900).map(|at| (format!("job-{at:03}"), if at == 500 { "poison" } else { "x" }.to_owned()));
    task.dispatch_many_with_ids(jobs).await.unwrap();
}

/// A worker behind a proxy, which dies when its handler begins a job with the input "poison". Returns how many jobs its
/// calls let begin early.
async fn dies_of_poison(
    test: &TestTask,
    redis: &TestRedis,
    options: TaskOptions,
    ran: Arc<Mutex<BTreeMap<String, usize>>>,
) -> Vec<usize> {
    let proxy = Arc::new(Proxy::start(redis.address()).await);
    let settles = test.settles(&proxy).await;
    let died = Arc::new(tokio::sync::Notify::new());
    let app = test.app_at(&proxy.url()).await;
    let (line, told) = (Arc::clone(&proxy), Arc::clone(&died));
    let _: TaskRef<String, u64> = app
        .task(&test.name, options, move |ctx: Context, input: String| {
            *ran.lock().unwrap().entry(ctx.id().to_string()).or_insert(0) += 1;
            let poison = input == "poison";
            if poison {
                line.pause();
                told.notify_one();
            }
            async move {
                if poison {
                    std::future::pending::<()>().await;
                }
                Ok::<u64, JobError>(1)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    tokio::time::timeout(PATIENCE, died.notified()).await.expect("the poison does not run");
    proxy.refuse().await;
    worker.abort();
    early_begins(&settles)
}

/// Lets a healthy worker run what is left, until the poison and its 899 neighbours have ended: none of these fails.
async fn only_the_poison_fails(
    test: &TestTask,
    task: &TaskRef<String, u64>,
    options: TaskOptions,
    ran: Arc<Mutex<BTreeMap<String, usize>>>,
) {
    let healthy = test.app().await;
    let seen = Arc::clone(&ran);
    let _: TaskRef<String, u64> = healthy
        .task(&test.name, options, move |ctx: Context, _: String| {
            *seen.lock().unwrap().entry(ctx.id().to_string()).or_insert(0) += 1;
            async { Ok::<u64, JobError>(1) }
        })
        .unwrap();
    let worker = TestWorker::start(healthy.worker());
    eventually("all have ended", PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        counts.completed + counts.failed == 900
    })
    .await;
    let mut innocent = Vec::new();
    for at in (0..900).filter(|at| *at != 500) {
        let id = format!("job-{at:03}");
        if task.handle(&id).unwrap().state().await.unwrap() == JobState::Failed {
            let runs = ran.lock().unwrap().get(&id).copied().unwrap_or(0);
            innocent.push((id, runs));
        }
    }
    worker.stop().await;
    assert!(innocent.is_empty(), "{} failed although only the poison kills (id, runs): {innocent:?}", innocent.len());
}

/// By default a job survives one stall, so jobs that began after the killing one run at most once more.
#[tokio::test]
async fn a_job_that_kills_its_workers_fails_no_other_job() {
    let (redis, test) = alone();
    let (_app, task) = test.producer().await;
    let ran = Arc::new(Mutex::new(BTreeMap::new()));
    let options = fast().concurrency(1).prefetch(50);
    dispatch_poison(&task).await;
    for _ in 0..2 {
        dies_of_poison(&test, &redis, options.clone(), Arc::clone(&ran)).await;
    }
    only_the_poison_fails(&test, &task, options, ran).await;
}

/// A worker that started later allows no stall. By its own options, the dying one may begin jobs early: it learns from
/// the answer to its first such calls, one in each call sequence, that it may not.
#[tokio::test]
async fn early_begins_follow_the_options_of_the_newest_start() {
    let (redis, test) = alone();
    let (_app, task) = test.producer().await;
    let ran = Arc::new(Mutex::new(BTreeMap::new()));
    let old = fast().concurrency(1).prefetch(50);
    let strict = fast_with(StallOptions::new().max_count(0));
    let deploy = async {
        eventually("the old worker starts", PATIENCE, async || test.column("meta", "maxCount").await.is_some()).await;
        let newest = test.start_worker(strict.clone().concurrency(1)).await;
        newest.stop().await;
        dispatch_poison(&task).await;
    };
    let (early, ()) = tokio::join!(dies_of_poison(&test, &redis, old, Arc::clone(&ran)), deploy);
    assert!((1..=3).contains(&early.len()), "{early:?}");
    only_the_poison_fails(&test, &task, strict, ran).await;
}

#[tokio::test]
async fn no_job_begins_early_if_a_crash_counts_as_a_failed_run() {
    let (redis, test) = alone();
    let (_app, task) = test.producer().await;
    let ran = Arc::new(Mutex::new(BTreeMap::new()));
    let options = fast_with(StallOptions::new().on_crash(OnCrash::Retry))
        .retry(RetryPolicy::new().attempts(1))
        .concurrency(1)
        .prefetch(50);
    dispatch_poison(&task).await;
    assert_eq!(dies_of_poison(&test, &redis, options.clone(), Arc::clone(&ran)).await, [0; 0]);
    only_the_poison_fails(&test, &task, options, ran).await;
}

#[tokio::test]
async fn a_job_expires_however_long_it_waits_in_the_worker() {
    let (test, app) = shared().await;
    let journal = Arc::clone(&test.journal);
    let ran = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&ran);
    let task = app
        .task(TASK, fast().concurrency(1).prefetch(50), move |ctx: Context, input: String| {
            let journal = Arc::clone(&journal);
            seen.lock().unwrap().insert(ctx.id().to_string());
            async move { if input == "long" { journal.work(ctx, "gate".into()).await } else { Ok::<u64, JobError>(1) } }
        })
        .unwrap();
    let before = (0..500).map(|at| (format!("before-{at:03}"), "x".to_owned()));
    task.dispatch_many_with_ids(before).await.unwrap();
    task.dispatch("long".into()).id("long").await.unwrap();
    for at in 0..60 {
        task.dispatch("x".into()).id(format!("late-{at:03}")).expires_after(Duration::from_secs(4)).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    test.started(&[task.handle("long").unwrap()]).await;
    eventually("one runs", PATIENCE, async || task.counts().await.unwrap().running == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    test.journal.open("gate");
    eventually("all have ended", PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        counts.completed + counts.failed == 561
    })
    .await;
    let late: Vec<String> = ran.lock().unwrap().iter().filter(|id| id.starts_with("late")).cloned().collect();
    worker.stop().await;
    assert!(late.is_empty(), "ran after they had expired: {late:?}");
}

#[tokio::test]
async fn a_cancel_reaches_a_job_that_began_and_was_withdrawn() {
    let (test, app) = shared().await;
    let journal = Arc::clone(&test.journal);
    let mut slowest = Duration::ZERO;
    let task = app
        .task(TASK, fast().concurrency(1).prefetch(50), move |ctx: Context, input: String| {
            let journal = Arc::clone(&journal);
            async move { if input == "long" { journal.work(ctx, "gate".into()).await } else { Ok::<u64, JobError>(1) } }
        })
        .unwrap();
    let jobs = (0..600).map(|at| (format!("job-{at:03}"), if at == 500 { "long" } else { "x" }.to_owned()));
    task.dispatch_many_with_ids(jobs).await.unwrap();
    let worker = TestWorker::start(app.worker());
    test.started(&[task.handle("job-500").unwrap()]).await;
    eventually("one runs", PATIENCE, async || task.counts().await.unwrap().running == 1).await;
    for at in 501..504 {
        let handle = task.handle(format!("job-{at}")).unwrap();
        assert_eq!(handle.state().await.unwrap(), JobState::Claimed);
        let asked = Instant::now();
        handle.cancel("not wanted").await.unwrap();
        assert!(matches!(handle.result().await, Err(Error::JobCancelled { .. })));
        slowest = slowest.max(asked.elapsed());
    }
    test.journal.open("gate");
    worker.stop().await;
    // A driver without a wake-up polls after 5 s.
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}

#[tokio::test]
async fn a_child_prefetched_after_its_parent_moves_to_an_idle_worker() {
    for prefetch in [0, 5] {
        let test = TestTask::new();
        let nested = |app: &App| -> TaskRef<u32, u32> {
            let itself: TaskRef<u32, u32> = app.task_ref(TASK).unwrap();
            app.task(TASK, fast().concurrency(1).prefetch(prefetch), move |_: Context, depth: u32| {
                let itself = itself.clone();
                async move {
                    if depth == 0 {
                        return Ok::<_, JobError>(0);
                    }
                    Ok(itself.dispatch(depth - 1).await?.result().await? + 1)
                }
            })
            .unwrap()
        };
        let app = test.app().await;
        let task = nested(&app);
        let first = TestWorker::start(app.worker());
        let parent = task.dispatch(1).await.unwrap();
        if prefetch > 0 {
            eventually("the child is claimed", PATIENCE, async || task.counts().await.unwrap().claimed == 1).await;
        }
        let other = test.app().await;
        nested(&other);
        let second = TestWorker::start(other.worker());
        let ended = tokio::time::timeout(PATIENCE, parent.result()).await;
        let counts = task.counts().await.unwrap();
        assert!(ended.is_ok(), "prefetch {prefetch}: the parent never ends next to an idle worker: {counts:?}");
        first.stop().await;
        second.stop().await;
    }
}

#[tokio::test]
async fn a_full_worker_of_a_paused_task_returns_prefetched_jobs() {
    let (test, app, task) = producing().await;
    task.dispatch_many((0..10).map(|_| "gate".to_owned())).await.unwrap();
    let worker = test.start_worker(fast().concurrency(1).prefetch(3)).await;
    counts(&task, 3, 1).await;
    app.inspector().pause(TASK, "a test").await.unwrap();
    counts(&task, 0, 1).await;
    worker.stop().await;
}

/// The driver has nothing to send until a slot is free, whatever is due meanwhile.
#[tokio::test]
async fn a_full_worker_sends_no_calls_while_a_delayed_job_is_due() {
    let test = TestTask::plain();
    let (_app, task) = test.producer().await;
    let proxy = Proxy::start(test.redis().address()).await;
    task.dispatch_many((0..3).map(|_| "gate".to_owned())).await.unwrap();
    let due = task.dispatch("gate".into()).delay(Duration::from_millis(1_000)).await.unwrap();
    let worker = test.start_worker_at(&proxy.url(), fast().concurrency(1).prefetch(2)).await;
    counts(&task, 2, 1).await;
    // It checks for a pause every 5 s.
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    let before = proxy.requests();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let calls = proxy.requests() - before;
    assert!(calls < 60, "{calls} requests in 2 s");
    test.journal.open("gate");
    due.result().await.unwrap();
    worker.stop().await;
}
