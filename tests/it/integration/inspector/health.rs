//! The health of a worker, as a probe reads it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use heartline::_internals::Timings;
use heartline::{
    App, Context, Diagnosis, DiagnosisKind, Heartbeat, JobError, StallOptions, TaskOptions, WorkerHealth,
    WorkerMonitor, WorkerPhase,
};

use crate::integration::fixtures::{alone, shared};
use crate::support::task::{INTERVAL, TASK, TestTask, fast, options};
use crate::support::{PATIENCE, Proxy, TestRedis, Warnings, eventually};

/// The health, once it has this property.
async fn becomes(monitor: &WorkerMonitor, what: &str, is_so: impl Fn(&WorkerHealth) -> bool) -> WorkerHealth {
    eventually(what, PATIENCE, async || Some(monitor.health()).filter(&is_so)).await
}

fn is_well(health: &WorkerHealth) -> bool {
    health.live && health.ready && health.reasons.is_empty() && health.phase == WorkerPhase::Working
}

#[tokio::test]
async fn a_worker_is_ready_while_it_works_and_live_all_the_time() {
    let (test, app) = shared().await;
    let jobs = test.declare_at(&app, fast().shutdown_grace(PATIENCE));
    let worker = app.worker();
    let monitor = worker.monitor();
    let before = monitor.health();
    assert_eq!((before.live, before.ready, before.phase), (true, false, WorkerPhase::Starting));
    assert_eq!((before.reasons.len(), before.held, before.last_beat), (1, 0, None));

    let running = worker.spawn();
    becomes(&monitor, "it works", is_well).await;
    assert!(is_well(&running.monitor().health()), "both report the same worker");
    jobs.dispatch("gate".into()).id("held").await.unwrap();
    let holds = becomes(&monitor, "it holds a job", |health| health.held == 1).await;
    assert!(is_well(&holds), "{holds:?}");
    // Heartbeats are a third of an interval apart.
    let beats = becomes(&monitor, "it beats", |health| health.last_beat.is_some()).await;
    assert!(beats.last_beat.unwrap() < INTERVAL, "{beats:?}");

    let stopping = tokio::spawn(running.stop());
    let health = becomes(&monitor, "it stops", |health| health.phase == WorkerPhase::Stopping).await;
    assert_eq!((health.live, health.ready, health.held), (true, false, 1));
    assert!(health.reasons.iter().any(|reason| reason == "the worker is stopping"), "{health:?}");
    test.journal.open("gate");
    let _ = stopping.await.unwrap().unwrap();
    let after = monitor.health();
    assert_eq!((after.live, after.ready, after.phase, after.held), (true, false, WorkerPhase::Stopped, 0));
    assert_eq!(after.reasons, ["the worker has stopped"]);
    let json = serde_json::to_value(&after).unwrap();
    assert_eq!((&json["live"], &json["phase"]), (&true.into(), &"stopped".into()));
}

#[tokio::test]
async fn a_worker_whose_future_is_dropped_is_reported_as_stopped() {
    let (test, app) = shared().await;
    test.declare_at(&app, fast());
    let worker = app.worker();
    let monitor = worker.monitor();
    let running = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    becomes(&monitor, "it works", is_well).await;
    running.abort();
    let health = becomes(&monitor, "it is gone", |health| health.phase == WorkerPhase::Stopped).await;
    // No worker takes its jobs any more; a restart helps.
    assert_eq!((health.live, health.ready, health.held), (false, false, 0), "{health:?}");
}

#[tokio::test]
async fn a_worker_in_an_outage_is_live_but_not_ready() {
    let test = TestTask::plain();
    let line = Proxy::start(test.redis().address()).await;
    let app = test.app_at(&line.url()).await;
    let jobs = test.declare_at(&app, fast());
    let worker = app.worker();
    let monitor = worker.monitor();
    let running = worker.spawn();
    jobs.dispatch("gate".into()).await.unwrap();
    becomes(&monitor, "it holds a job", |health| is_well(health) && health.held == 1).await;
    line.refuse().await;
    let away = becomes(&monitor, "it is not ready", |health| !health.ready).await;
    assert!(away.live && away.phase == WorkerPhase::Working, "{away:?}");
    assert!(
        away.reasons.iter().any(|reason| reason.contains("heartbeats of the task work have not been answered for")),
        "{away:?}"
    );
    // A restart would not help, however long the outage lasts.
    let long = becomes(&monitor, "it is away for long", |health| health.last_beat > Some(INTERVAL * 4)).await;
    assert!(long.live && !long.ready, "{long:?}");
    line.accept().await;
    test.journal.open("gate");
    becomes(&monitor, "it works again", is_well).await;
    let _ = running.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_waits_for_redis_is_live_but_not_ready() {
    let redis = TestRedis::start();
    let line = Proxy::start(redis.address()).await;
    line.refuse().await;
    let app = App::builder().redis(line.url()).lazy().build().await.unwrap();
    app.task(TASK, fast(), |_, _: u32| async { Ok::<_, JobError>(()) }).unwrap();
    let worker = app.worker();
    let monitor = worker.monitor();
    let running = worker.spawn();
    for _ in 0..3 {
        tokio::task::yield_now().await;
        let health = monitor.health();
        assert_eq!((health.live, health.ready, health.phase), (true, false, WorkerPhase::Starting));
    }
    line.accept().await;
    becomes(&monitor, "it works", is_well).await;
    let _ = running.stop().await.unwrap();
}

fn is_of_slots(diagnosis: &Diagnosis) -> bool {
    matches!(diagnosis.kind, DiagnosisKind::SlotsHeldByLostRuns { .. })
}

/// A worker on a runtime of its own with this many threads. It sends its monitor, and stops on `stop`.
fn on_its_own_threads(
    threads: usize,
    url: String,
    prefix: String,
    timings: Timings,
    stop: tokio::sync::oneshot::Receiver<()>,
    worker: impl FnOnce(&App) -> heartline::Worker + Send + 'static,
) -> (thread::JoinHandle<heartline::StopReason>, WorkerMonitor) {
    let (tell, told) = mpsc::channel();
    let running = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        let running = runtime.spawn(async move {
            let app = App::builder().redis(url).prefix(prefix).timings(timings).build().await.unwrap();
            let worker = worker(&app);
            tell.send(worker.monitor()).unwrap();
            worker.run_until(async { drop(stop.await) }).await.unwrap()
        });
        runtime.block_on(running).unwrap()
    });
    (running, told.recv_timeout(PATIENCE).unwrap())
}

/// Stops a worker on a runtime of its own.
async fn stops(stop: tokio::sync::oneshot::Sender<()>, worker: thread::JoinHandle<heartline::StopReason>) {
    stop.send(()).unwrap();
    eventually("it stops", PATIENCE, async || worker.is_finished()).await;
    let _ = worker.join().unwrap();
}

#[tokio::test]
async fn a_worker_whose_runtime_is_blocked_is_not_live() {
    let test = TestTask::new();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (free, held) = mpsc::channel::<()>();
    let (url, prefix) = (test.redis().app_url(), test.prefix.clone());
    let held = std::sync::Mutex::new(held);
    let (worker, monitor) = on_its_own_threads(1, url, prefix, Timings::default(), stopped, move |app| {
        let held = std::sync::Arc::new(held);
        let block = move |_: Context, _: u32| {
            let held = held.clone();
            async move {
                // It blocks the only thread until the test lets it go.
                held.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                Ok::<_, JobError>(())
            }
        };
        app.task(TASK, fast(), block).unwrap();
        app.worker()
    });
    becomes(&monitor, "it works", is_well).await;
    let (app, _) = test.producer().await;
    app.task_ref::<u32, ()>(TASK).unwrap().dispatch(0).id("blocks").await.unwrap();
    let blocked = becomes(&monitor, "it is not live", |health| !health.live).await;
    assert!(!blocked.ready && blocked.held == 1, "{blocked:?}");
    assert!(
        blocked.reasons.iter().any(|reason| reason.contains("handlers have blocked the runtime for")),
        "{blocked:?}"
    );
    // The job is not lost: the keeper keeps sending heartbeats.
    assert_eq!(test.places("blocks").await, ["running"]);
    free.send(()).unwrap();
    becomes(&monitor, "it is well again", is_well).await;
    test.arrives("blocks", "completed").await;
    stops(stop, worker).await;
}

/// It takes half a minute or more: a claim loop is reported as stuck no sooner, however short the interval is.
#[tokio::test]
async fn a_worker_with_a_stuck_claim_loop_is_not_live() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (url, prefix) = (redis.app_url(), test.prefix.clone());
    let (name, journal) = (test.name.clone(), test.journal.clone());
    let (worker, monitor) = on_its_own_threads(
        4,
        url,
        prefix,
        Timings { claim_silence: 3 * INTERVAL, ..Timings::default() },
        stopped,
        move |app| {
            let handler = move |ctx: Context, gate: String| {
                let journal = journal.clone();
                async move { journal.work(ctx, gate).await }
            };
            app.task(&name, options(INTERVAL), handler).unwrap();
            app.worker()
        },
    );
    becomes(&monitor, "it works", is_well).await;
    let (_app, jobs) = test.producer().await;
    // Another worker takes the lock, so the outcome is late; and the log blocks the driver, which reports that.
    let hold = warnings.hold_at(&["an outcome came too late", &test.name]);
    jobs.dispatch("stolen".into()).id("stolen").await.unwrap();
    test.arrives("stolen", "running").await;
    let fence = test.journal.runs_of("stolen").first().map(|run| run.fence);
    test.run::<u64>("HSET", "locks", &["stolen", "another:1"]).await;
    test.journal.open("stolen");
    hold.reached().await;
    for _ in 0..3 {
        jobs.dispatch("gate".into()).await.unwrap();
    }
    let dead =
        eventually("it is not live", PATIENCE, async || Some(monitor.health()).filter(|health| !health.live)).await;
    let told = format!("no claim was sent for the task {} for", test.name);
    assert!(
        dead.reasons.iter().any(|reason| reason.starts_with(&told) && reason.ends_with(" waited")),
        "{dead:?} {fence:?}"
    );
    // Its heartbeats get replies and its runtime runs, so there is no other sign.
    assert_eq!(dead.reasons.len(), 1, "{dead:?}");
    assert!(dead.last_beat.unwrap() < Duration::from_secs(5), "{dead:?}");
    drop(hold);
    becomes(&monitor, "it claims again", |health| health.live && health.held == 3).await;
    test.journal.open("gate");
    stops(stop, worker).await;
}

/// A task whose first runs block their threads until the test lets them go. They send no heartbeats, so they lose
/// their jobs.
fn blocks_once(app: &App, name: &str, interval: Duration, held: mpsc::Receiver<()>) {
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let stall = StallOptions::new().interval(interval).max_count(5).heartbeat(Heartbeat::Manual);
    let options = TaskOptions::new().concurrency(1).cancel_grace(Duration::from_millis(100)).stall(stall);
    let handler = move |ctx: Context, _: String| {
        let held = held.clone();
        async move {
            if ctx.stalled_count() == 0 && ctx.id().as_str().starts_with("blocks") {
                let _ = held.lock().unwrap().recv_timeout(PATIENCE * 2);
            }
            Ok::<_, JobError>(ctx.fence())
        }
    };
    app.task(name, options, handler).unwrap();
}

#[tokio::test]
async fn a_worker_whose_slots_are_all_held_by_lost_runs_is_not_live() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (free, held) = mpsc::channel::<()>();
    let (url, prefix, name) = (redis.app_url(), test.prefix.clone(), test.name.clone());
    let interval = Duration::from_millis(250);
    let (worker, monitor) = on_its_own_threads(4, url, prefix, Timings::default(), stopped, move |app| {
        blocks_once(app, &name, interval, held);
        app.worker()
    });
    becomes(&monitor, "it works", is_well).await;
    let (app, jobs) = test.producer().await;
    let blocks = jobs.dispatch(String::new()).id("blocks").await.unwrap();
    // Soon after, it is recovered and waits.
    let is_held = async || test.places("blocks").await.iter().any(|place| place == "running");
    eventually("it is held", PATIENCE, is_held).await;
    let waits = jobs.dispatch(String::new()).id("waits").await.unwrap();

    // Its own recovery waits too, because there is no other slot.
    let dead = becomes(&monitor, "it is not live", |health| !health.live).await;
    let told = format!("runs that lost their jobs have held every slot of the task {} for", test.name);
    assert!(!dead.ready && dead.reasons.len() == 1 && dead.reasons[0].starts_with(&told), "{dead:?}");
    warnings.wait_for(&["a run outlives its cancel grace", &test.name, "blocks"], PATIENCE).await;
    let inspector = app.inspector();
    let diagnosis = eventually("it is diagnosed", PATIENCE, async || {
        let task = inspector.task(&test.name).await.unwrap();
        inspector.diagnose_task(&task).await.unwrap().into_iter().find(is_of_slots)
    })
    .await;
    let id = inspector.workers().await.unwrap()[0].worker.clone();
    assert!(diagnosis.is_risk() && diagnosis.task.as_deref() == Some(&test.name), "{diagnosis:?}");
    let facts = serde_json::json!({ "waiting": 2, "slots": 1, "workers": [{ "worker": id, "slots": 1 }] });
    assert_eq!(serde_json::to_value(&diagnosis).unwrap()["facts"], facts);

    free.send(()).unwrap();
    for job in [blocks, waits] {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("its slot stays taken").unwrap();
    }
    becomes(&monitor, "it is well again", is_well).await;
    stops(stop, worker).await;
}

#[tokio::test]
async fn a_lost_run_in_the_only_slot_makes_a_worker_not_live() {
    let (redis, test) = alone();
    let other = redis.unique_prefix();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (free, held) = mpsc::channel::<()>();
    let (url, prefix, name, also) = (redis.app_url(), test.prefix.clone(), test.name.clone(), other.clone());
    let (worker, monitor) = on_its_own_threads(4, url, prefix, Timings::default(), stopped, move |app| {
        blocks_once(app, &name, Duration::from_millis(250), held);
        app.task(&also, fast(), |ctx: Context, _: String| async move { Ok::<_, JobError>(ctx.fence()) }).unwrap();
        app.worker().max_jobs(1)
    });
    becomes(&monitor, "it works", is_well).await;
    let (app, jobs) = test.producer().await;
    jobs.dispatch(String::new()).id("blocks").await.unwrap();
    test.arrives("blocks", "running").await;
    let waits = app.task_ref::<String, u64>(&other).unwrap().dispatch(String::new()).await.unwrap();
    let says = |health: &WorkerHealth, name: &str| health.reasons.iter().any(|reason| reason.contains(name));
    let dead = becomes(&monitor, "neither task works", |health| says(health, &test.name) && says(health, &other)).await;
    assert!(!dead.live, "{dead:?}");
    let inspector = app.inspector();
    eventually("both are diagnosed", PATIENCE, async || {
        let found = inspector.diagnose().await.unwrap();
        let tasks = [&test.name, &other].map(|name| Some(name.as_str()));
        tasks.iter().all(|task| {
            found.iter().any(|found| is_of_slots(found) && found.is_risk() && found.task.as_deref() == *task)
        })
    })
    .await;
    free.send(()).unwrap();
    tokio::time::timeout(PATIENCE, waits.result()).await.expect("the slot stays taken").unwrap();
    stops(stop, worker).await;
}
