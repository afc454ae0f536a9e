//! The content of one call: few jobs if they are large, so that Redis and the line are soon free for the next call.

use std::sync::Arc;

use heartline::{App, JobHandle, Retention, RetentionLimit, TaskOptions, TaskRef};
use redis::AsyncCommands;
use tokio::task::JoinSet;

use crate::faults::ground::alone;
use crate::faults::watch::{KIB, Watch, text};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};

/// A little less than a fifth of the bound of a call.
const FIFTH: usize = 100 * KIB;

/// This many jobs are ready at once.
const JOBS: usize = 30;

/// One call may claim or report half of the slots.
const SLOTS: usize = 2 * JOBS + 4;

struct Bounded {
    _redis: TestRedis,
    test: TestTask,
    watch: Watch,
    app: App,
}

impl Bounded {
    async fn start() -> Bounded {
        let (redis, test) = alone();
        let (watch, app) = (Watch::new(&test, &redis).await, test.app_at(&redis.url()).await);
        Bounded { _redis: redis, test, watch, app }
    }

    /// A worker that returns a text of this many bytes for each job when the gate is open.
    fn task(&self, options: TaskOptions, bytes: usize) -> TaskRef<String, String> {
        let journal = Arc::clone(&self.test.journal);
        let task = self.app.task(&self.test.name, options, move |ctx, _: String| {
            let journal = Arc::clone(&journal);
            async move {
                journal.begin(&ctx);
                journal.opened("go").await;
                Ok::<_, heartline::JobError>(text(bytes))
            }
        });
        task.unwrap()
    }

    /// The ids in the events of each call, without calls that write no events.
    async fn calls(&self, kind: &str) -> Vec<Vec<String>> {
        let calls = self.watch.told(kind).await;
        assert_eq!(calls.concat().len(), JOBS, "{kind}: {calls:?}");
        calls
    }
}

fn largest(calls: &[Vec<String>]) -> usize {
    calls.iter().map(Vec::len).max().unwrap()
}

async fn all_end<O: serde::de::DeserializeOwned>(jobs: &[JobHandle<O>]) {
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("a job does not end").unwrap();
    }
}

#[tokio::test]
async fn a_report_carries_few_large_results() {
    let bounded = Bounded::start().await;
    let task = bounded.task(options(INTERVAL).concurrency(SLOTS), FIFTH);
    let worker = TestWorker::start(bounded.app.worker());
    let jobs = task.dispatch_many((0..JOBS).map(|_| text(2))).await.unwrap();
    eventually("all jobs run", PATIENCE, async || bounded.test.journal.runs().len() == JOBS).await;
    bounded.test.journal.open("go");
    all_end(&jobs).await;
    let calls = bounded.calls("completed").await;
    // Ids and fences add a little.
    assert!(largest(&calls) <= 6, "{calls:?}");
    worker.stop().await;
}

/// Dispatches jobs with these ids and payloads, each from its own caller, at once.
async fn together(task: &TaskRef<String, u64>, jobs: impl Iterator<Item = (String, usize)>) {
    let mut callers = JoinSet::new();
    for (id, bytes) in jobs {
        let task = task.clone();
        callers.spawn(async move { task.dispatch(text(bytes)).id(id).await.unwrap() });
    }
    callers.join_all().await;
}

#[tokio::test]
async fn large_jobs_are_dispatched_few_at_a_time() {
    for of_many_callers in [false, true] {
        let bounded = Bounded::start().await;
        let (_app, task) = bounded.test.producer().await;
        if of_many_callers {
            together(&task, (0..JOBS).map(|at| (format!("job-{at}"), FIFTH))).await;
        } else {
            task.dispatch_many((0..JOBS).map(|_| text(FIFTH))).await.unwrap();
        }
        let calls = bounded.calls("dispatched").await;
        assert!(largest(&calls) <= 5, "of many callers: {of_many_callers}, {calls:?}");
    }
}

#[tokio::test]
async fn a_job_larger_than_a_call_travels_alone() {
    let bounded = Bounded::start().await;
    let (_app, task) = bounded.test.producer().await;
    let sizes = |kind: &'static str| {
        (0..JOBS / 2).map(move |at| (format!("{kind}-{at}"), if at % 5 == 2 { 600 * KIB } else { 10 }))
    };
    let inputs = sizes("many").map(|(id, bytes)| (id, text(bytes)));
    task.dispatch_many_with_ids(inputs).await.unwrap();
    together(&task, sizes("each")).await;
    let calls = bounded.calls("dispatched").await;
    for kind in ["many", "each"] {
        for at in [2, 7, 12] {
            let id = format!("{kind}-{at}");
            assert!(calls.contains(&vec![id.clone()]), "{id}: {calls:?}");
        }
    }
}

/// Fills the task with completed jobs that are an hour old.
async fn seed(bounded: &Bounded, jobs: usize) {
    let (test, mut conn) = (&bounded.test, bounded.watch.conn.clone());
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.unwrap();
    let old = (seconds - 3_600) * 1_000;
    let all: Vec<usize> = (0..jobs).collect();
    for chunk in all.chunks(1_000) {
        let (mut places, mut payloads, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for &at in chunk {
            let id = format!("old-{at}");
            places.push((old + at as u64 % 1_000, id.clone()));
            payloads.push((id.clone(), text(10)));
            results.push((id, text(10)));
        }
        let mut pipe = redis::pipe();
        pipe.zadd_multiple(test.key("completed"), &places).ignore();
        pipe.hset_multiple(test.key("payload"), &payloads).ignore();
        pipe.hset_multiple(test.key("result"), &results).ignore();
        let () = pipe.query_async(&mut conn).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_with_a_backlog_of_removals_pauses_anyway() {
    const BACKLOG: usize = 25_000;
    const PASS: usize = 10_000;
    let bounded = Bounded::start().await;
    let test = &bounded.test;
    seed(&bounded, BACKLOG).await;
    let retention = Retention::new().completed(RetentionLimit::count(10));
    bounded.task(options(INTERVAL).retention(retention), 2);
    let worker = TestWorker::start(bounded.app.worker());
    let mut conn = bounded.watch.conn.clone();
    eventually("a second pass begins", PATIENCE, async || {
        BACKLOG - conn.zcard::<_, usize>(test.key("completed")).await.unwrap() > PASS
    })
    .await;
    let calls = bounded.watch.told_at("removed").await;
    assert!(calls.iter().all(|(_, ids)| ids.len() <= 500));
    // Passes are 5 s apart, so this time contains at most one. On a busy machine a pass ends early, and there are
    // more.
    for (from, _) in &calls {
        let seen = calls.iter().filter(|(ms, _)| (*from..from + 2_000).contains(ms));
        let removed: usize = seen.map(|(_, ids)| ids.len()).sum();
        assert!(removed <= PASS, "{removed} were removed without a pause");
    }
    worker.stop().await;
}
