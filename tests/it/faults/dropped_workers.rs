//! Workers whose future is dropped while they run: aborted, lost in a `select!`, or gone with their runtime. Ended
//! jobs are recorded, the rest is requeued uncounted, and no job waits for a sweep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use heartline::{JobState, Observer, RunEnd, RunInfo, StopReason, TaskOptions, TaskRef, Worker};
use redis::AsyncCommands;
use tokio::sync::oneshot;

use crate::faults::ground::{alone, proxied};
use crate::support::task::{TestTask, options};
use crate::support::{PATIENCE, eventually};

/// A sweep within this interval would fail the test by its stall.
const LONG: Duration = Duration::from_secs(30);

fn long() -> TaskOptions {
    options(LONG).cancel_grace(Duration::from_millis(500))
}

/// A worker whose handler waits for its gate, and the journal with the gates.
async fn worker(test: &TestTask, url: &str) -> Worker {
    let app = test.app_at(url).await;
    let _: TaskRef<String, u64> = test.declare_at(&app, long());
    app.worker()
}

/// The jobs wait again, in this order, uncounted, and the worker holds nothing.
async fn are_handed_back(test: &TestTask, ids: &[&str]) {
    let mut conn = test.conn().await;
    eventually("the jobs wait again", PATIENCE, async || {
        let waiting: Vec<String> = conn.clone().lrange(test.key("wait"), 0, -1).await.unwrap();
        waiting == ids
    })
    .await;
    let (_app, task) = test.producer().await;
    for id in ids {
        let job = task.job(*id).await.unwrap();
        assert_eq!((job.state, job.failed_attempts, job.stalled_count), (JobState::Waiting, 0, 0), "{id}");
    }
    let left: (usize, usize) =
        (conn.hlen(test.key("locks")).await.unwrap(), conn.scard(test.key("active")).await.unwrap());
    assert_eq!(left, (0, 0));
    assert_eq!(test.dump("stalls").await, None);
}

/// Dispatches three jobs that begin to run.
async fn three_run(test: &TestTask) {
    let (_app, jobs) = test.producer().await;
    let mut handles = Vec::new();
    for id in ["a", "b", "c"] {
        handles.push(jobs.dispatch("gate".to_owned()).id(id).await.unwrap());
    }
    test.started(&handles).await;
}

#[tokio::test]
async fn an_aborted_worker_hands_its_jobs_back_at_once() {
    let (redis, test) = alone();
    let working = worker(&test, &redis.url()).await;
    let presence = format!("heartline:worker:{}", working.id());
    let running = tokio::spawn(working.run());
    three_run(&test).await;
    running.abort();
    are_handed_back(&test, &["a", "b", "c"]).await;
    let conn = test.conn().await;
    eventually("its record says that it has stopped", PATIENCE, async || {
        conn.clone().hexists::<_, _, bool>(&presence, "stoppedAt").await.unwrap()
    })
    .await;
    // Another worker runs them.
    let healthy = test.start_worker(long()).await;
    test.journal.open("gate");
    let (_app, jobs) = test.producer().await;
    for id in ["a", "b", "c"] {
        tokio::time::timeout(PATIENCE, jobs.handle(id).unwrap().result()).await.unwrap().unwrap();
    }
    healthy.stop().await;
}

#[tokio::test]
async fn a_worker_whose_runtime_is_shut_down_hands_its_jobs_back() {
    let (redis, test) = alone();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let working = worker(&test, &redis.url()).await;
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let running = working.spawn_on(&runtime);
        ended.recv().unwrap();
        drop(running);
    });
    three_run(&test).await;
    end.send(()).unwrap();
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    are_handed_back(&test, &["a", "b", "c"]).await;
}

trait SpawnOn {
    fn spawn_on(self, runtime: &tokio::runtime::Runtime) -> heartline::RunningWorker;
}

impl SpawnOn for Worker {
    fn spawn_on(self, runtime: &tokio::runtime::Runtime) -> heartline::RunningWorker {
        let _in_it = runtime.enter();
        self.spawn()
    }
}

/// Counts the runs that have ended.
struct Ends(Arc<AtomicUsize>);

impl Observer for Ends {
    fn ended(&self, _: &RunInfo<'_>, _: &RunEnd<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_and_claims_under_way_survive_a_dropped_worker() {
    let (_redis, test, proxy) = proxied().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = Arc::new(AtomicUsize::new(0));
    let working = worker(&test, &proxy.url()).await.observe(Ends(Arc::clone(&ended)));
    tokio::spawn(async move {
        tokio::select! {
            ended = working.run() => panic!("{ended:?}"),
            _ = stopped => {}
        }
    });
    let (_app, jobs) = test.producer().await;
    let first = jobs.dispatch("first".to_owned()).id("first").await.unwrap();
    let second = jobs.dispatch("second".to_owned()).id("second").await.unwrap();
    test.started(&[first.clone(), second.clone()]).await;
    // The call that reports the first job is executed and claims the third; its reply is held back.
    let mut hold = proxy.hold_next_reply_to(test.key("replies"));
    let third = jobs.dispatch("third".to_owned()).id("third").await.unwrap();
    test.journal.open("first");
    hold.happened().await;
    // This job ends meanwhile, and no call reports it.
    test.journal.open("second");
    eventually("it has ended", PATIENCE, async || ended.load(Ordering::SeqCst) == 2).await;
    stop.send(()).unwrap();
    for job in [&first, &second] {
        let fence = tokio::time::timeout(PATIENCE, job.result()).await.expect("the outcome is lost").unwrap();
        assert_eq!(test.journal.runs_of(job.id()).last().unwrap().fence, fence);
        assert_eq!(test.journal.runs_of(job.id()).len(), 1);
    }
    are_handed_back(&test, &["third"]).await;
    assert!(test.journal.runs_of(third.id()).is_empty());
    drop(hold);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collected_outcomes_survive_a_blocked_runtime() {
    let (_redis, test, proxy) = proxied().await;
    let app = test.app_at(&proxy.url()).await;
    let (ended, blocks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (journal, blocked) = (Arc::clone(&test.journal), Arc::clone(&blocks));
    // With this concurrency, one outcome alone waits for the answer to the call before.
    let _: TaskRef<String, u64> = app
        .task(&test.name, long().concurrency(20), move |ctx: heartline::Context, gate: String| {
            let (journal, blocked) = (Arc::clone(&journal), Arc::clone(&blocked));
            async move {
                journal.begin(&ctx);
                journal.opened(&gate).await;
                if gate == "block" {
                    blocked.store(1, Ordering::SeqCst);
                }
                while gate == "block" && blocked.load(Ordering::SeqCst) == 1 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok::<_, heartline::JobError>(ctx.fence())
            }
        })
        .unwrap();
    let working = app.worker().observe(Ends(Arc::clone(&ended)));
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                ended = working.run() => panic!("{ended:?}"),
                _ = stopped => {}
            }
        });
        runtime
    });
    let (_app, jobs) = test.producer().await;
    let mut handles = Vec::new();
    for gate in ["first", "second", "block"] {
        handles.push(jobs.dispatch(gate.to_owned()).id(gate).await.unwrap());
    }
    test.started(&handles).await;
    let mut hold = proxy.hold_next_reply_to(test.key("replies"));
    test.journal.open("first");
    hold.happened().await;
    test.journal.open("second");
    eventually("it has ended", PATIENCE, async || ended.load(Ordering::SeqCst) == 2).await;
    test.journal.open("block");
    eventually("the runtime is blocked", PATIENCE, async || blocks.load(Ordering::SeqCst) == 1).await;
    stop.send(()).unwrap();
    for job in &handles[..2] {
        let fence = tokio::time::timeout(PATIENCE, job.result()).await.expect("the outcome is lost").unwrap();
        assert_eq!(test.journal.runs_of(job.id()).last().unwrap().fence, fence);
        assert_eq!(test.journal.runs_of(job.id()).len(), 1);
    }
    blocks.store(2, Ordering::SeqCst);
    tokio::task::spawn_blocking(move || thread.join().unwrap().shutdown_background()).await.unwrap();
    drop(hold);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_outcome_of_a_dropped_worker_delays_no_other_job() {
    let (_redis, test, proxy) = proxied().await;
    let app = test.app_at(&proxy.url()).await;
    let journal = Arc::clone(&test.journal);
    let task: TaskRef<String, String> = app
        .task(&test.name, long(), move |ctx: heartline::Context, what: String| {
            let journal = Arc::clone(&journal);
            async move {
                journal.begin(&ctx);
                journal.opened(&what).await;
                Ok::<_, heartline::JobError>("x".repeat(700_000))
            }
        })
        .unwrap();
    let running = tokio::spawn(app.worker().run());
    for (id, gate) in [("large", "open"), ("a", "gate"), ("b", "gate")] {
        task.dispatch(gate.to_owned()).id(id).await.unwrap();
    }
    eventually("all run", PATIENCE, async || test.journal.runs().len() == 3).await;
    let large = proxy.cut_next_reply_matching({
        // This call gets no reply; all others do.
        move |request| request.len() > 600_000
    });
    let mut cuts = vec![large];
    for _ in 0..40 {
        cuts.push(proxy.cut_next_reply_matching(|request| request.len() > 600_000));
    }
    test.journal.open("open");
    cuts.remove(0).happened().await;
    running.abort();
    let mut conn = test.conn().await;
    eventually("the others wait again", PATIENCE, async || {
        let waiting: Vec<String> = conn.clone().lrange(test.key("wait"), 0, -1).await.unwrap();
        waiting == ["a", "b"]
    })
    .await;
    let completed: usize = conn.zcard(test.key("completed")).await.unwrap();
    assert_eq!(completed, 1, "its call was executed without a reply");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_outlives_a_dropped_worker_is_asked_to_stop() {
    let (redis, test) = alone();
    let url = redis.url();
    let app = test.app_at(&url).await;
    // The threads run as long as this test.
    let running_test = Arc::new(());
    let (journal, runs) = (Arc::clone(&test.journal), Arc::downgrade(&running_test));
    let _: TaskRef<String, u64> = app
        .task(&test.name, long(), move |ctx: heartline::Context, _: String| {
            let (journal, runs) = (Arc::clone(&journal), Weak::clone(&runs));
            async move {
                journal.begin(&ctx);
                let beating = tokio::task::spawn_blocking(move || {
                    let mut is_asked = false;
                    // A thread that ended at once could complete its job before the handler is dropped.
                    while runs.strong_count() > 0 {
                        if !is_asked && let Err(e) = ctx.heartbeat() {
                            journal.note(format!("{e:?}"));
                            is_asked = true;
                        }
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    0
                });
                Ok::<_, heartline::JobError>(beating.await?)
            }
        })
        .unwrap();
    let running = tokio::spawn(app.worker().run());
    three_run(&test).await;
    running.abort();
    eventually("all are asked to stop", PATIENCE, async || test.journal.interruptions().len() == 3).await;
    assert_eq!(test.journal.interruptions(), ["Shutdown"; 3]);
    are_handed_back(&test, &["a", "b", "c"]).await;
}

#[tokio::test]
async fn a_running_worker_outlives_its_handle_and_stops_on_request() {
    let (redis, test) = alone();
    let running = worker(&test, &redis.url()).await.spawn();
    let id = running.id().to_string();
    three_run(&test).await;
    assert!(test.journal.runs().iter().all(|run| run.worker == id));
    drop(running);
    test.journal.open("gate");
    let (_app, jobs) = test.producer().await;
    for id in ["a", "b", "c"] {
        tokio::time::timeout(PATIENCE, jobs.handle(id).unwrap().result()).await.unwrap().unwrap();
    }
    let other = TestTask::on(&redis);
    let mut running = worker(&other, &redis.url()).await.spawn();
    three_run(&other).await;
    other.journal.open("gate");
    // A timeout around the future does not lose the worker.
    assert!(tokio::time::timeout(Duration::from_millis(50), running.ended()).await.is_err());
    let stopped = tokio::time::timeout(PATIENCE, running.stop()).await.unwrap().unwrap();
    assert_eq!(stopped, StopReason::Shutdown);
    other.nothing_is_left_but(3).await;
}
