//! Calls a job of a real worker and of a real producer.
//!
//! All of it runs on one thread, whose tasks take turns in the order in which they were woken. So what a batch holds follows
//! from the order of steps alone, and the machine may be as busy as it likes.

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

    /// How many settle calls the worker has made: each of its lines numbers its own, and leaves the number of the last.
    async fn settles(&mut self) -> usize {
        let records: HashMap<String, String> = self.conn.hgetall(Self::key("calls")).await.unwrap();
        records.values().map(|record| record.split('\n').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    /// Waits until no more than so many jobs are left, all of which run, and the worker blocks for more.
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

    /// How many jobs each call claimed, or how many it reported: "started" or "completed".
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
    TaskOptions::new().concurrency(concurrency).retention(Retention::remove_at_once())
}

/// Jobs that run until they are told to end.
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

    /// Lets so many handlers return, all at once.
    fn end(&self, count: usize) {
        self.gate.add_permits(count);
    }
}

/// All slots are filled, then all handlers return at once, again and again.
///
/// The first claims carry no outcome: there are two halves of the slots, or as many batches of 200 as the slots take. After
/// that each batch of jobs is reported in one call, which claims the next. In the end the worker is idle and finds the
/// marker of its own last claim: one more look.
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

/// Half a batch, 25 of the 100 slots, is what a second call opens for while one is under way. All else waits for the answer.
#[tokio::test]
async fn outcomes_that_come_while_a_call_is_under_way_go_out_together() {
    let mut counted = Counted::new().await;
    let gated = Gated::dispatch(&counted, 100, 100).await;
    let worker = TestWorker::start(counted.app.worker());
    gated.entered(100).await;
    // With a free slot the worker looks once more; from then on no call is under way.
    gated.end(1);
    counted.quiet(99).await;
    let mut left = 99;
    for ends in [25, 31] {
        counted.proxy.pause();
        for _ in 0..ends {
            gated.end(1);
            // Each turn lets all that can run go one step.
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

/// A call does not leave with the first outcome: whatever can run without waiting gets a turn before.
#[tokio::test]
async fn an_outcome_that_is_a_turn_behind_another_goes_out_with_it() {
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
    // By the time that this one has its turn, so has the driver been told of the first job.
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

/// The number of looks depends on what comes first, so that it has bounds and no number.
///
/// Two claims without an outcome come first, each half of the slots. A handler that returns at once is over before the driver
/// has its next turn, so a batch that was claimed whole is reported whole, in a call of its own: 40 calls. When the list is
/// empty the worker looks once for the marker of its own last claim, unless it comes across it while it reports, and once
/// more when the last answer with jobs came behind the first call that could get none.
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
async fn a_dispatch_costs_one_call_and_jobs_dispatched_together_share_calls_of_200() {
    let mut counted = Counted::new().await;
    let task = counted.app.task_ref::<usize, ()>(TASK).unwrap();
    // The connection and the cache of scripts come up.
    task.dispatch(0).await.unwrap();
    counted.reset().await;
    task.dispatch(1).await.unwrap();
    assert_eq!(counted.scripts().await, 1);
    counted.reset().await;
    task.dispatch_many(0..1_000).await.unwrap();
    assert_eq!(counted.scripts().await, 5);
    // The first goes alone, and the others gather behind it.
    counted.reset().await;
    try_join_all((0..1_000).map(|job| task.dispatch(job).into_future())).await.unwrap();
    assert_eq!(counted.scripts().await, 1 + 5);
}
