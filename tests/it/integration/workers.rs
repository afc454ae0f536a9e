//! Which tasks a worker handles, how many jobs at a time, and how it stops.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::_internals::Timings;
use heartline::{App, Event, Interrupted, JobState, TaskOptions, TaskRef};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of jobs that run at the same time, now and at most so far.
#[derive(Clone, Default)]
struct Crowd(Arc<(AtomicUsize, AtomicUsize)>);

impl Crowd {
    fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A task whose jobs wait for a permit.
fn gated(app: &App, name: &str, options: TaskOptions, crowd: &Crowd, gate: &Arc<Semaphore>) -> TaskRef<u32, u32> {
    let (crowd, gate) = (crowd.clone(), gate.clone());
    let task = app.task(name, options, move |_, input: u32| {
        let (crowd, gate) = (crowd.clone(), gate.clone());
        async move {
            crowd.enter();
            gate.acquire().await?.forget();
            crowd.leave();
            Ok::<_, heartline::JobError>(input)
        }
    });
    task.unwrap()
}

#[tokio::test]
async fn a_worker_handles_only_the_named_tasks() {
    let (test, app) = shared().await;
    let wanted = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let other = app.task("other", fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let worker = TestWorker::start(app.worker().tasks([TASK]).unwrap());
    let waits = other.dispatch(1).await.unwrap();
    assert_eq!(wanted.dispatch(2).await.unwrap().result().await.unwrap(), 2);
    test.epochs_pass(1).await;
    assert_eq!(waits.state().await.unwrap(), JobState::Waiting);
    let second = TestWorker::start(app.worker().tasks(["other"]).unwrap());
    assert_eq!(waits.result().await.unwrap(), 1);
    second.stop().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_task_runs_at_most_its_concurrency() {
    let (_test, app) = shared().await;
    let (crowd, gate) = (Crowd::default(), Arc::new(Semaphore::new(0)));
    let task = gated(&app, TASK, fast().concurrency(4), &crowd, &gate);
    let handles = task.dispatch_many(0..50).await.unwrap();
    // A repeated name counts once.
    let worker = TestWorker::start(app.worker().tasks([TASK, TASK]).unwrap());
    eventually("all slots are taken", PATIENCE, async || crowd.now() == 4).await;
    assert_eq!(task.counts().await.unwrap().running, 4);
    gate.add_permits(1000);
    for handle in handles {
        handle.result().await.unwrap();
    }
    assert_eq!(crowd.most(), 4);
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_may_hold_no_job_does_not_start() {
    let test = TestTask::new();
    let app = test.app().await;
    test.declare_at(&app, fast());
    let refused = app.worker().max_jobs(0).run().await.unwrap_err().to_string();
    assert!(refused.contains("max_jobs is 0: it must be at least 1"), "{refused}");
}

#[tokio::test]
async fn max_jobs_bounds_all_tasks_together_and_starves_none() {
    let (_test, app) = shared().await;
    let (crowd, gate) = (Crowd::default(), Arc::new(Semaphore::new(0)));
    let tasks: Vec<_> =
        (0..4).map(|at| gated(&app, &format!("task-{at}"), fast().concurrency(10), &crowd, &gate)).collect();
    let mut handles = Vec::new();
    for task in &tasks {
        handles.extend(task.dispatch_many(0..30).await.unwrap());
    }
    let worker = TestWorker::start(app.worker().max_jobs(3));
    eventually("all slots are taken", PATIENCE, async || crowd.now() == 3).await;
    let mut running = 0;
    for task in &tasks {
        running += task.counts().await.unwrap().running;
    }
    assert_eq!(running, 3, "no more are held than run");
    gate.add_permits(1000);
    for handle in handles {
        tokio::time::timeout(PATIENCE, handle.result()).await.expect("no task starves").unwrap();
    }
    assert_eq!(crowd.most(), 3);
    worker.stop().await;
}

#[tokio::test]
async fn tasks_with_a_backlog_share_the_only_slot_in_turn() {
    let (_test, app) = shared().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut handles = Vec::new();
    for at in 0..3 {
        let order = order.clone();
        let handler = move |_, (): ()| {
            order.lock().unwrap().push(at);
            async { Ok::<_, heartline::JobError>(()) }
        };
        let task: TaskRef<(), ()> = app.task(&format!("task-{at}"), fast(), handler).unwrap();
        handles.extend(task.dispatch_many([(); 60]).await.unwrap());
    }
    let worker = TestWorker::start(app.worker().max_jobs(1));
    for handle in handles {
        handle.result().await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    // Once each task has begun, and while all have jobs, none runs twice before the others had their turn.
    let begin = (0..3).filter_map(|task| order.iter().position(|ran| *ran == task)).max().unwrap();
    assert!(begin < 20, "{order:?}");
    for turns in order[begin..begin + 20].windows(3) {
        let mut tasks = turns.to_vec();
        tasks.sort_unstable();
        assert_eq!(tasks, [0, 1, 2], "{order:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_full_worker_passes_the_wake_marker_on() {
    let (test, app) = shared().await;
    let (crowd, gate) = (Crowd::default(), Arc::new(Semaphore::new(0)));
    let other = gated(&app, "other", fast(), &crowd, &gate);
    let task = gated(&app, TASK, fast(), &crowd, &gate);
    let worker = TestWorker::start(app.worker().max_jobs(1));
    // Only an idle driver takes it.
    test.run::<()>("ZADD", "wake", &["0", "marker"]).await;
    eventually("it is idle", PATIENCE, async || test.run::<u32>("ZCARD", "wake", &[]).await == 0).await;
    let first = other.dispatch(1).await.unwrap();
    eventually("the only room is taken", PATIENCE, async || crowd.now() == 1).await;
    let next = task.dispatch(2).await.unwrap();
    eventually("another worker could be woken", PATIENCE, async || {
        test.run::<Option<u32>>("ZSCORE", "wake", &["marker"]).await.is_some()
    })
    .await;
    assert_eq!(next.state().await.unwrap(), JobState::Waiting);
    gate.add_permits(1000);
    assert_eq!(first.result().await.unwrap(), 1);
    assert_eq!(next.result().await.unwrap(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn a_stopping_worker_passes_the_wake_marker_on() {
    let (test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    for round in 0..20 {
        let worker = TestWorker::start(app.worker());
        assert_eq!(task.dispatch(round).await.unwrap().result().await.unwrap(), round);
        let job = task.dispatch(round).await.unwrap();
        worker.stop().await;
        if job.state().await.unwrap() == JobState::Waiting {
            let marker: Option<u32> = test.run("ZSCORE", "wake", &["marker"]).await;
            assert_eq!(marker, Some(0), "no other worker would be woken, round {round}");
        }
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_and_claims_no_more() {
    let (test, app) = shared().await;
    let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(0)));
    let (pass, count) = (gate.clone(), seen.clone());
    let task = app
        .task(TASK, fast().concurrency(1).shutdown_grace(Duration::from_secs(30)), move |ctx, input: u32| {
            let (pass, count) = (pass.clone(), count.clone());
            async move {
                ctx.shutting_down().await;
                *count.lock().unwrap() += 1;
                assert!(ctx.is_shutting_down() && !ctx.is_cancelled() && ctx.heartbeat().is_ok());
                pass.acquire().await?.forget();
                Ok::<_, heartline::JobError>(input)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(7).id("first").await.unwrap();
    test.arrives("first", "running").await;
    task.dispatch(8).id("next").await.unwrap();
    let stopped = tokio::spawn(worker.stop());
    eventually("it was asked to stop", PATIENCE, async || *seen.lock().unwrap() == 1).await;
    // It gets heartbeats for as long as the worker waits for it.
    let fence = test.column("locks", "first").await;
    test.epochs_pass(2).await;
    assert_eq!(test.column("locks", "first").await, fence);
    gate.add_permits(1);
    stopped.await.unwrap();
    assert_eq!(task.handle("first").unwrap().result().await.unwrap(), 7);
    assert_eq!(test.places("next").await, ["wait"]);
}

#[tokio::test]
async fn a_shutdown_requeues_unfinished_jobs_at_the_front_uncounted() {
    let (test, app) = shared().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let begun = Arc::new(Mutex::new(0));
    let count = begun.clone();
    let options = fast().concurrency(4).cancel_grace(Duration::from_millis(300));
    let task: TaskRef<String, ()> = app
        .task(TASK, options, move |ctx, input: String| {
            let (log, count) = (log.clone(), count.clone());
            async move {
                *count.lock().unwrap() += 1;
                if input == "ignore" {
                    std::future::pending::<()>().await;
                }
                ctx.cancelled().await;
                log.lock().unwrap().push(ctx.heartbeat());
                match input.as_str() {
                    "err" => Err(heartline::JobError::new("gave up").fatal()),
                    "panic" => panic!("gave up"),
                    _ => Ok(()),
                }
            }
        })
        .unwrap();
    for (id, input) in
        [("ignores", "ignore"), ("fails", "err"), ("panics", "panic"), ("finishes", "ok"), ("waits", "ok")]
    {
        task.dispatch(input.into()).id(id).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    eventually("four run", PATIENCE, async || *begun.lock().unwrap() == 4).await;
    worker.stop().await;
    assert_eq!(*told.lock().unwrap(), [Err(Interrupted::Shutdown); 3]);
    assert_eq!(test.places("finishes").await, ["completed"], "what returned a value has completed");
    for id in ["ignores", "fails", "panics"] {
        assert_eq!(test.places(id).await, ["wait"]);
        let job = task.job(id).await.unwrap();
        assert_eq!((job.failed_attempts, job.stalled_count, job.error), (0, 0, None), "{id}");
    }
    let waiting: Vec<String> = test.run("LRANGE", "wait", &["0", "-1"]).await;
    assert_eq!((waiting.len(), waiting[3].as_str()), (4, "waits"));
    assert_eq!(test.run::<u64>("EXISTS", "stalls", &[]).await, 0);
}

#[tokio::test]
async fn an_idle_worker_of_many_tasks_needs_no_polling() {
    let (_test, app) = shared().await;
    let tasks: Vec<TaskRef<u32, u32>> = (0..5)
        .map(|at| {
            app.task(&format!("task-{at}"), fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) })
                .unwrap()
        })
        .collect();
    let worker = TestWorker::start(app.worker());
    for task in &tasks {
        task.dispatch(0).await.unwrap().result().await.unwrap();
    }
    let begun = std::time::Instant::now();
    for (input, task) in (0..).zip(tasks.iter().cycle().take(40)) {
        assert_eq!(task.dispatch(input).await.unwrap().result().await.unwrap(), input);
    }
    // Polling every 5 s, or reading the state every second, would take far longer.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    worker.stop().await;
}

#[tokio::test]
async fn each_connection_names_its_purpose() {
    // A shared server would list other clients.
    let redis = crate::support::TestRedis::start();
    let app = App::builder().redis(redis.app_url()).build().await.unwrap();
    let task: TaskRef<u32, u32> =
        app.task("t", fast(), |_, n: u32| async move { Ok::<_, heartline::JobError>(n) }).unwrap();
    let names = async || -> Vec<String> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut redis.conn().await).await.unwrap();
        let names =
            list.lines().filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("name=heartline:")));
        names.map(str::to_owned).collect()
    };
    task.dispatch(1).await.unwrap();
    eventually("a producer is there", PATIENCE, async || {
        names().await.iter().any(|name| name.starts_with("producer:"))
    })
    .await;
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    // The event of the dispatch may arrive, if it was in the same millisecond.
    while !matches!(next(&mut events).await, Event::Started { .. }) {}
    task.handle("nobody").unwrap().state().await.unwrap_err();
    for role in ["driver", "keeper", "wake", "hints", "events", "shared"] {
        let of_the_worker = format!("{role}:{}", worker.id);
        eventually(&format!("a {role} is there"), PATIENCE, async || {
            names().await.iter().any(|name| *name == of_the_worker || role == "events" && name.starts_with("events:"))
        })
        .await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_list_of_tasks_is_written_again() {
    let test = TestTask::new();
    let timings = Timings { relist: Duration::from_secs(1), ..Timings::default() };
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix).timings(timings).build().await.unwrap();
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(1).await.unwrap().result().await.unwrap();
    let inspector = app.inspector();
    assert_eq!(inspector.task_names().await.unwrap(), [TASK]);
    // A cluster node may lose only this key.
    let list = format!("{}:tasks", inspector.prefix());
    let () = redis::AsyncCommands::del(&mut test.conn().await, list).await.unwrap();
    assert_eq!(inspector.task_names().await.unwrap(), [""; 0]);
    let is_there = async || inspector.task_names().await.unwrap() == [TASK];
    eventually("it is listed", PATIENCE, is_there).await;
    worker.stop().await;
}
