//! Shutdown at every moment: nothing is lost or counted, and `Unclean` names what is left.

use crate::scripts::call::{Task, without};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, Warnings, eventually};
use heartline::{App, Context, JobError, JobHandle, JobState, StallOptions, StopReason, TaskOptions};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// An interval of this many seconds.
pub fn stall(seconds: u64) -> StallOptions {
    StallOptions::new().interval(Duration::from_secs(seconds))
}

/// A task with a worker behind a proxy, and direct access to the same task.
struct Scene {
    proxy: Proxy,
    working: App,
    by_hand: Task,
}

impl Scene {
    async fn new() -> Scene {
        let redis = TestRedis::plain();
        let by_hand = Task::on(redis.clone(), "").await;
        let proxy = Proxy::start(redis.address()).await;
        let working = App::builder().redis(proxy.url()).prefix(by_hand.app_prefix()).build().await.unwrap();
        Scene { proxy, working, by_hand }
    }

    /// An App that does not use the proxy.
    async fn direct(&self) -> App {
        App::builder().redis(self.by_hand.url()).prefix(self.by_hand.app_prefix()).build().await.unwrap()
    }

    /// A worker that waits for jobs: its first claim has its reply.
    async fn idle_worker(&self) -> TestWorker {
        let waits = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&waits);
        let _never = self.proxy.cut_next_reply_matching(move |request| {
            seen.fetch_or(request.windows(8).any(|part| part == b"BZPOPMIN"), Ordering::SeqCst);
            false
        });
        let worker = TestWorker::start(self.working.worker());
        eventually("the worker is idle", PATIENCE, async || waits.load(Ordering::SeqCst)).await;
        worker
    }

    async fn nothing_is_counted(&mut self) {
        for column in ["stalledCount", "attempt", "stalls", "failed", "cancelled", "locks", "active", "candidates"] {
            assert_eq!(self.by_hand.held(column).await, "", "{column}");
        }
    }

    /// Every job is in exactly one place.
    async fn jobs_by_place(&mut self) -> Vec<String> {
        let mut lines = self.by_hand.keys().await;
        let places = ["wait", "wait:high", "wait:low", "delayed", "active", "candidates", "completed", "failed"];
        lines.retain(|line| places.contains(&line.split(' ').next().unwrap()));
        lines
    }
}

fn quick() -> TaskOptions {
    TaskOptions::new().stall(stall(1)).shutdown_grace(Duration::ZERO).cancel_grace(Duration::from_millis(50))
}

/// Counts handlers that began: a job that is locked in Redis may not have reached its worker.
#[derive(Clone, Default)]
struct Begun(Arc<AtomicU64>);

impl Begun {
    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    async fn until(&self, count: u64) {
        eventually("the handlers began", PATIENCE, async || self.0.load(Ordering::SeqCst) >= count).await;
    }
}

/// The value of a job that has ended, or ends soon.
async fn value(handle: &JobHandle<u32>) -> u32 {
    tokio::time::timeout(PATIENCE, handle.result()).await.expect("the job does not end").unwrap()
}

/// A handler that never ends by itself.
async fn endless(_: Context, _: u32) -> Result<u32, JobError> {
    std::future::pending::<()>().await;
    Ok(0)
}

#[tokio::test]
async fn an_idle_worker_stops_at_once_and_leaves_only_its_record() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick().shutdown_grace(Duration::from_secs(600)), endless).unwrap();
    let worker = TestWorker::start(scene.working.worker());
    let workers = format!("{}:workers", scene.by_hand.app_prefix());
    let redis = TestRedis::plain();
    eventually("the worker is present", PATIENCE, async || !redis.dump(&workers).await.is_empty()).await;
    worker.stop().await;
    let left = redis.dump(scene.by_hand.app_prefix()).await;
    let presence = format!("{}:worker:", scene.by_hand.app_prefix());
    let tasks = format!("{}:tasks", scene.by_hand.app_prefix());
    let known = [scene.by_hand.key("replies"), scene.by_hand.key("meta"), workers, tasks];
    assert!(left.keys().all(|key| known.contains(key) || key.starts_with(&presence)), "{left:?}");
    // A job that comes later waits.
    let handle = task.dispatch(1).await.unwrap();
    assert_eq!(handle.state().await.unwrap(), JobState::Waiting);
    assert_eq!(scene.by_hand.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#);
}

#[tokio::test]
async fn a_shutdown_before_the_first_claim_claims_nothing() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick(), endless).unwrap();
    task.dispatch_many(0..3).await.unwrap();
    let before = scene.by_hand.list("wait").await;
    assert_eq!(scene.working.worker().run_until(async {}).await.unwrap(), StopReason::Shutdown);
    assert_eq!(scene.by_hand.list("wait").await, before);
    scene.nothing_is_counted().await;
}

#[tokio::test]
async fn jobs_claimed_during_a_shutdown_are_handed_back_in_order() {
    let mut scene = Scene::new().await;
    let started = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&started);
    let handler = move |_: Context, _: u32| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, JobError>(0) }
    };
    // One claim takes half of the slots.
    let task = scene.working.task("task", quick().concurrency(6), handler).unwrap();
    let ids = (0..5).map(|i| (format!("job-{i}"), i)).collect::<Vec<_>>();
    task.dispatch_many_with_ids(ids).await.unwrap();
    // The worker is asked to stop while its first claim is on the way to the server; the reply of that claim is lost.
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = Mutex::new(Some(stop));
    // The check of rights at the start names all keys; a claim does not name that of the stalls.
    let (calls, stalls) = (scene.by_hand.key("replies").into_bytes(), scene.by_hand.key("stalls").into_bytes());
    let cut = scene.proxy.cut_next_reply_matching(move |request| {
        let names = |key: &[u8]| request.windows(key.len()).any(|part| part == key);
        let is_claim = names(&calls) && !names(&stalls);
        if is_claim && let Some(stop) = stop.lock().unwrap().take() {
            stop.send(()).unwrap();
        }
        is_claim
    });
    let running = tokio::spawn(scene.working.worker().run_until(async { stopped.await.unwrap() }));
    cut.happened().await;
    assert_eq!(running.await.unwrap().unwrap(), StopReason::Shutdown);
    let events = scene.by_hand.held("events").await;
    assert!(events.contains(r#""started": "job-0 job-1 job-2""#), "the claim was executed: {events}");
    assert_eq!(started.load(Ordering::SeqCst), 0);
    assert_eq!(scene.by_hand.list("wait").await, ["job-0", "job-1", "job-2", "job-3", "job-4"]);
    scene.nothing_is_counted().await;
}

#[tokio::test]
async fn jobs_handed_back_together_keep_their_order() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick().concurrency(20), endless).unwrap();
    let ids = (0..20).map(|i| (format!("job-{i:02}"), i)).collect::<Vec<_>>();
    task.dispatch_many_with_ids(ids.clone()).await.unwrap();
    let worker = TestWorker::start(scene.working.worker());
    eventually("all run", PATIENCE, async || task.counts().await.unwrap().running == 20).await;
    worker.stop().await;
    let order = ids.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(scene.by_hand.list("wait").await, order);
}

#[tokio::test]
async fn a_requested_cancel_takes_precedence_over_handing_back() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick(), endless).unwrap();
    let handle = task.dispatch(1).await.unwrap();
    let worker = TestWorker::start(scene.working.worker());
    eventually("it runs", PATIENCE, async || handle.state().await.unwrap() == JobState::Running).await;
    scene.by_hand.hset("cancelling", &[(handle.id().as_str(), "why")]).await;
    worker.stop().await;
    assert_eq!(handle.state().await.unwrap(), JobState::Cancelled);
    assert_eq!(scene.by_hand.held("stalledCount").await, "");
}

/// A task whose only job has run, with the gate that releases its outcome.
async fn about_to_settle(scene: &Scene) -> (JobHandle<u32>, TestWorker, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let passed = Arc::clone(&gate);
    let begun = Begun::default();
    let beginning = begun.clone();
    let handler = move |_: Context, number: u32| {
        beginning.one_more();
        let passed = Arc::clone(&passed);
        async move {
            passed.acquire().await?.forget();
            Ok::<_, JobError>(number * 2)
        }
    };
    let options = quick().stall(stall(3)).shutdown_grace(Duration::from_secs(2));
    let task = scene.working.task("task", options, handler).unwrap();
    let handle = task.dispatch(4).await.unwrap();
    let worker = TestWorker::start(scene.working.worker());
    begun.until(1).await;
    (handle, worker, gate)
}

#[tokio::test]
async fn a_claim_without_a_timely_reply_makes_the_stop_unclean() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick(), endless).unwrap();
    let worker = TestWorker::start(scene.working.worker());
    scene.direct().await.task_ref::<u32, u32>("task").unwrap().dispatch(1).id("first").await.unwrap();
    eventually("it runs", PATIENCE, async || task.job("first").await.unwrap().state == JobState::Running).await;
    let mut hold = scene.proxy.hold_next_reply_to(scene.by_hand.key("replies"));
    scene.direct().await.task_ref::<u32, u32>("task").unwrap().dispatch(2).id("second").await.unwrap();
    hold.happened().await;
    let StopReason::Unclean { left } = worker.begin_stop().await.unwrap().unwrap() else {
        panic!("no worker knows the claimed job")
    };
    assert_eq!(left.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["first"]);
    assert_ne!(scene.by_hand.held("replies").await, "", "a copy of the call that comes late must find its record");
    drop(hold);
}

#[tokio::test]
async fn an_idle_worker_hands_back_a_claim_answered_late() {
    let mut scene = Scene::new().await;
    let task = scene.working.task("task", quick().stall(stall(30).max_count(0)), endless).unwrap();
    let worker = scene.idle_worker().await;
    let mut hold = scene.proxy.hold_next_reply_to(scene.by_hand.key("replies"));
    scene.direct().await.task_ref::<u32, u32>("task").unwrap().dispatch(1).id("late").await.unwrap();
    hold.happened().await;
    let stopping = worker.begin_stop();
    // Longer than an idle worker waits while Redis is away, shorter than the time-out of the call.
    tokio::time::sleep(Duration::from_millis(6500)).await;
    drop(hold);
    assert_eq!(stopping.await.unwrap().unwrap(), StopReason::Shutdown);
    assert_eq!(task.job("late").await.unwrap().state, JobState::Waiting);
    scene.nothing_is_counted().await;
}

#[tokio::test]
async fn a_redis_that_returns_in_time_gets_every_outcome() {
    let mut scene = Scene::new().await;
    let (handle, worker, gate) = about_to_settle(&scene).await;
    scene.proxy.refuse().await;
    gate.add_permits(1);
    let stopping = worker.begin_stop();
    scene.proxy.accept().await;
    assert_eq!(stopping.await.unwrap().unwrap(), StopReason::Shutdown);
    assert_eq!(value(&handle).await, 8);
    scene.nothing_is_counted().await;
}

#[tokio::test]
async fn unreported_jobs_are_named_and_swept_by_another_worker() {
    let mut scene = Scene::new().await;
    let begun = Begun::default();
    let counted = begun.clone();
    let handler = move |ctx: Context, number: u32| {
        counted.one_more();
        endless(ctx, number)
    };
    let task = scene.working.task("task", quick().concurrency(3), handler).unwrap();
    let handles = task.dispatch_many(0..5).await.unwrap();
    let worker = TestWorker::start(scene.working.worker());
    begun.until(3).await;
    scene.proxy.refuse().await;
    let StopReason::Unclean { left } = worker.begin_stop().await.unwrap().unwrap() else {
        panic!("the stop was clean")
    };
    let expected = handles[..3].iter().map(|handle| handle.id().clone()).collect::<BTreeSet<_>>();
    assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), expected);
    // Nothing changed in Redis: the jobs are locked and no stall was counted.
    assert_eq!(scene.by_hand.held("stalledCount").await, "");
    let direct = scene.direct().await;
    let task = direct.task("task", quick(), async |_: Context, number: u32| Ok::<_, JobError>(number)).unwrap();
    assert_eq!(task.counts().await.unwrap().running, 3);
    let worker = TestWorker::start(direct.worker());
    for (handle, number) in handles.iter().zip(0..) {
        let handle = task.handle(handle.id()).unwrap();
        assert_eq!(value(&handle).await, number);
        let stalls = task.job(handle.id()).await.unwrap().stalled_count;
        assert_eq!(stalls, u32::from(number < 3), "job {number}");
    }
    worker.stop().await;
    assert_eq!(scene.jobs_by_place().await.len(), 1);
}

#[tokio::test]
async fn an_outcome_that_never_arrived_is_left_and_the_job_reruns() {
    let mut scene = Scene::new().await;
    let (handle, worker, gate) = about_to_settle(&scene).await;
    scene.proxy.refuse().await;
    gate.add_permits(1);
    let reason = worker.begin_stop().await.unwrap().unwrap();
    assert_eq!(reason, StopReason::Unclean { left: vec![handle.id().clone()] });
    let direct = scene.direct().await;
    let options = quick();
    let task =
        direct.task("task", options, async |ctx: Context, _: u32| Ok::<_, JobError>(ctx.stalled_count())).unwrap();
    let worker = TestWorker::start(direct.worker());
    assert_eq!(value(&task.handle(handle.id()).unwrap()).await, 1);
    worker.stop().await;
    assert_eq!(without(scene.jobs_by_place().await, &["completed"]), [] as [&str; 0]);
}

#[tokio::test]
async fn an_idle_worker_stops_cleanly_during_an_outage() {
    let scene = Scene::new().await;
    scene.working.task("task", quick(), endless).unwrap();
    let worker = scene.idle_worker().await;
    scene.proxy.refuse().await;
    worker.stop().await;
}

/// While one outcome waits for Redis, the other handlers still receive the end of the grace.
#[tokio::test]
async fn handlers_are_asked_to_stop_while_a_settle_is_pending() {
    let scene = Scene::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let told = Arc::new(Semaphore::new(0));
    let (passed, telling) = (Arc::clone(&gate), Arc::clone(&told));
    let begun = Begun::default();
    let beginning = begun.clone();
    let handler = move |ctx: Context, number: u32| {
        beginning.one_more();
        let (passed, telling) = (Arc::clone(&passed), Arc::clone(&telling));
        async move {
            if number == 0 {
                passed.acquire().await?.forget();
            } else {
                ctx.cancelled().await;
                telling.add_permits(1);
            }
            Ok::<_, JobError>(())
        }
    };
    let options = quick().stall(stall(6)).shutdown_grace(Duration::from_millis(100));
    let task = scene.working.task("task", options, handler).unwrap();
    task.dispatch_many(0..2).await.unwrap();
    let worker = TestWorker::start(scene.working.worker());
    begun.until(2).await;
    scene.proxy.refuse().await;
    gate.add_permits(1);
    let stopping = worker.begin_stop();
    // This shutdown ends after 0.1 + 0.05 + 4 s.
    let told = tokio::time::timeout(Duration::from_secs(3), told.acquire()).await;
    assert!(told.is_ok(), "the handler was not asked to stop");
    let _ = stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_worker_does_not_wait_for_a_claim_that_is_refused() {
    let mut scene = Scene::new().await;
    let options = quick().stall(stall(600)).shutdown_grace(Duration::from_secs(1));
    scene.working.task("task", options, endless).unwrap();
    let worker = scene.idle_worker().await;
    let replies = scene.by_hand.key("replies");
    scene.by_hand.del("replies").await;
    let () = redis::AsyncCommands::set(&mut scene.by_hand.conn, replies, "x").await.unwrap();
    let (task, warnings) = (scene.working.task_ref::<u32, u32>("task").unwrap(), Warnings::capture());
    task.dispatch(1).await.unwrap();
    let is_refused =
        async || warnings.all().iter().any(|line| line.contains(&*worker.id) && line.contains("WRONGTYPE"));
    eventually("its claims are refused", PATIENCE, is_refused).await;
    let stopped =
        tokio::time::timeout(PATIENCE, worker.begin_stop()).await.expect("it waits for its claim").unwrap().unwrap();
    assert_eq!(stopped, StopReason::Unclean { left: Vec::new() });
}

#[test]
fn a_stop_is_recorded_although_user_code_fills_the_blocking_pool() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    let (done, until_done) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let mut scene = Scene::new().await;
        scene.working.task("task", quick(), endless).unwrap();
        let worker = scene.idle_worker().await;
        let fills = tokio::task::spawn_blocking(move || until_done.recv());
        assert_eq!(worker.begin_stop().await.unwrap().unwrap(), StopReason::Shutdown);
        assert!(scene.by_hand.held("replies").await.contains("closed"), "a late copy of a claim could claim jobs");
        drop(done);
        let _ = fills.await;
    });
}
