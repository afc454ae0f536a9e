//! Calls per job of a real worker and of a real producer.
//!
//! Everything runs on one thread, whose tasks take turns in the order in which they were woken. So the contents of a
//! batch follow from the order of steps, on any machine.

use crate::costs::meter::commands;
use crate::support::task::TASK;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, eventually};
use futures_util::future::try_join_all;
use heartline::{App, Retention, TaskOptions, TaskRef};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use std::collections::{BTreeSet, HashMap};
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, Semaphore};

const JOBS: usize = 2_000;

/// A server with one worker and one task, whose calls are counted.
struct Counted {
    app: App,
    proxy: Proxy,
    conn: MultiplexedConnection,
    _redis: TestRedis,
}

impl Counted {
    async fn new() -> Counted {
        let redis = TestRedis::start();
        let (conn, proxy) = (redis.conn().await, Proxy::start(redis.address()).await);
        let app = App::builder().redis(proxy.url()).prefix("costs").build().await.unwrap();
        Counted { app, proxy, conn, _redis: redis }
    }

    fn key(suffix: &str) -> String {
        format!("costs:{{{TASK}}}:{suffix}")
    }

    /// The number of the worker's settle calls: each of its call sequences has its own numbers, and stores the last
    /// one.
    async fn settles(&mut self) -> usize {
        let records: HashMap<String, String> = self.conn.hgetall(Self::key("replies")).await.unwrap();
        records.values().map(|record| record.split('\n').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    /// Waits until at most this many jobs are left, all of them running, and the worker blocks for more.
    async fn quiet(&mut self, left: usize) {
        let mut conn = self.conn.clone();
        eventually("the worker has nothing to do", PATIENCE, async || {
            let info: String = redis::cmd("INFO").arg("clients").query_async(&mut conn).await.unwrap();
            let jobs: usize = conn.hlen(Self::key("payload")).await.unwrap();
            let running: usize = conn.hlen(Self::key("locks")).await.unwrap();
            (jobs, running) == (left, left) && info.contains("blocked_clients:1\r\n")
        })
        .await;
    }

    /// How many jobs each call claimed ("started") or reported ("completed").
    async fn batches<T: FromIterator<usize>>(&mut self, name: &str) -> T {
        let events: StreamRangeReply = self.conn.xrange_all(Self::key("events")).await.unwrap();
        let words = events.ids.iter().filter_map(|entry| entry.get::<String>(name));
        words.map(|words| words.split(' ').count()).collect()
    }

    async fn assert_full(&mut self, batch: usize, what: &str) {
        for name in ["started", "completed"] {
            assert_eq!(self.batches::<BTreeSet<usize>>(name).await, BTreeSet::from([batch]), "{name}, {what}");
        }
    }

    /// EVALSHA calls since CONFIG RESETSTAT.
    async fn scripts(&mut self) -> u64 {
        commands(&mut self.conn).await.get("evalsha").copied().unwrap_or(0)
    }

    async fn reset(&mut self) {
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut self.conn).await.unwrap();
    }
}

fn options(concurrency: usize) -> TaskOptions {
    TaskOptions::new().concurrency(concurrency).prefetch(0).retention(Retention::remove_at_once())
}

/// Jobs that run until they may end.
struct Gated {
    entered: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Gated {
    /// Dispatches the jobs of a task whose handlers wait at the gate.
    async fn dispatch(counted: &Counted, concurrency: usize, jobs: usize) -> Gated {
        let (entered, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, pass) = (entered.clone(), gate.clone());
        let handler = move |_, _| {
            let (count, pass) = (count.clone(), pass.clone());
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                pass.acquire().await?.forget();
                Ok::<_, heartline::JobError>(())
            }
        };
        let task: TaskRef<usize, ()> = counted.app.task(TASK, options(concurrency), handler).unwrap();
        task.dispatch_many(0..jobs).await.unwrap();
        Gated { entered, gate }
    }

    async fn entered(&self, count: usize) {
        eventually("the handlers run", PATIENCE, async || self.entered.load(Ordering::SeqCst) == count).await;
    }

    /// Lets this many handlers return, all at once.
    fn end(&self, count: usize) {
        self.gate.add_permits(count);
    }
}

/// All slots fill up, then all handlers return at once, again and again.
///
/// The first claims carry no outcome: two halves of the slots, or as many batches of 200 as fit. After that, each
/// batch is reported in one call, which claims the next. Finally the worker is idle and finds the marker of its own
/// last claim: one more look.
#[tokio::test]
async fn jobs_that_end_together_are_settled_in_full_batches() {
    for (concurrency, batch) in [(2, 1), (100, 50), (1_000, 200)] {
        let jobs = JOBS.min(concurrency * 20);
        let mut counted = Counted::new().await;
        let gated = Gated::dispatch(&counted, concurrency, jobs).await;
        let worker = TestWorker::start(counted.app.worker());
        for full in (concurrency..=jobs).step_by(concurrency) {
            gated.entered(full).await;
            gated.end(concurrency);
        }
        counted.quiet(0).await;
        let what = format!("concurrency {concurrency}");
        assert_eq!(counted.settles().await, concurrency / batch + jobs / batch + 1, "{what}");
        counted.assert_full(batch, &what).await;
        worker.stop().await;
    }
}

/// A second call starts while one is under way only for half a batch: 25 of the 100 slots. Smaller reports wait for
/// the reply.
#[tokio::test]
async fn outcomes_that_come_during_a_call_are_sent_together() {
    let mut counted = Counted::new().await;
    let gated = Gated::dispatch(&counted, 100, 100).await;
    let worker = TestWorker::start(counted.app.worker());
    gated.entered(100).await;
    // With a free slot the worker looks again; from then on no call is under way.
    gated.end(1);
    counted.quiet(99).await;
    let mut left = 99;
    for ends in [25, 31] {
        counted.proxy.pause();
        for _ in 0..ends {
            gated.end(1);
            // Each turn lets every ready task make one step.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        counted.proxy.resume();
        left -= ends;
        counted.quiet(left).await;
    }
    gated.end(left);
    counted.quiet(0).await;
    assert_eq!(counted.batches::<Vec<usize>>("completed").await, [1, 1, 24, 1, 25, 5, 43]);
    worker.stop().await;
}

/// A call does not start with the first outcome: every ready task gets a turn first.
#[tokio::test]
async fn an_outcome_one_turn_after_another_is_sent_with_it() {
    let mut counted = Counted::new().await;
    let [first, between, second] = [(); 3].map(|()| Arc::new(Notify::new()));
    let (begin, ended, follow) = (first.clone(), between.clone(), second.clone());
    let handler = move |_, job: usize| {
        let (begin, ended, follow) = (begin.clone(), ended.clone(), follow.clone());
        async move {
            if job == 0 {
                begin.notified().await;
                ended.notify_one();
            } else {
                follow.notified().await;
            }
            Ok::<_, heartline::JobError>(())
        }
    };
    // When this one gets its turn, the driver already knows of the first job.
    let relay = tokio::spawn(async move {
        loop {
            between.notified().await;
            second.notify_one();
        }
    });
    let task: TaskRef<usize, ()> = counted.app.task(TASK, options(100), handler).unwrap();
    let worker = TestWorker::start(counted.app.worker());
    for round in 1..=10 {
        task.dispatch_many(0..2).await.unwrap();
        counted.quiet(2).await;
        first.notify_one();
        counted.quiet(0).await;
        assert_eq!(counted.batches::<Vec<usize>>("completed").await, [2].repeat(round));
    }
    relay.abort();
    worker.stop().await;
}

/// The number of looks depends on timing, so that the test has bounds instead of a number.
///
/// Two claims without an outcome come first, each for half of the slots. A handler that returns at once is done before
/// the driver's next turn, so a batch that was claimed whole is reported whole: 40 calls. When the list is empty, the
/// worker looks once for the marker of its own last claim, unless it finds it during a report, and once more if the
/// last reply with jobs came after the first call that could get none.
#[tokio::test]
async fn handlers_that_return_at_once_are_settled_in_full_batches_too() {
    let (concurrency, batch) = (100, 50);
    let mut counted = Counted::new().await;
    let task: TaskRef<usize, ()> =
        counted.app.task(TASK, options(concurrency), |_, _| async { Ok::<_, heartline::JobError>(()) }).unwrap();
    task.dispatch_many(0..JOBS).await.unwrap();
    let worker = TestWorker::start(counted.app.worker());
    counted.quiet(0).await;
    let settles = counted.settles().await;
    let least = 2 + JOBS / batch;
    assert!((least..=least + 2).contains(&settles), "{settles} calls");
    counted.assert_full(batch, "no waiting").await;
    worker.stop().await;
}

/// The marker wakes the worker, which claims the job in one call and reports it in another.
#[tokio::test]
async fn a_lone_job_costs_two_settles() {
    let mut counted = Counted::new().await;
    let task: TaskRef<usize, ()> =
        counted.app.task(TASK, options(100), |_, _| async { Ok::<_, heartline::JobError>(()) }).unwrap();
    let worker = TestWorker::start(counted.app.worker());
    counted.quiet(0).await;
    assert_eq!(counted.settles().await, 1, "the first look");
    for job in 1..=5 {
        task.dispatch(job).await.unwrap();
        counted.quiet(0).await;
        assert_eq!(counted.settles().await, 1 + 2 * job);
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_dispatch_costs_one_call_and_concurrent_ones_share_calls() {
    let mut counted = Counted::new().await;
    let task = counted.app.task_ref::<usize, ()>(TASK).unwrap();
    // Sets up the connection and the script cache.
    task.dispatch(0).await.unwrap();
    counted.reset().await;
    task.dispatch(1).await.unwrap();
    assert_eq!(counted.scripts().await, 1);
    counted.reset().await;
    task.dispatch_many(0..1_000).await.unwrap();
    assert_eq!(counted.scripts().await, 5);
    // The first goes alone, and the others are batched after it.
    counted.reset().await;
    try_join_all((0..1_000).map(|job| task.dispatch(job).into_future())).await.unwrap();
    assert_eq!(counted.scripts().await, 1 + 5);
}
