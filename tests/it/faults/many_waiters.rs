//! Thousands of handles that wait for results of jobs without a worker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heartline::{App, CancelOutcome, Error, EventMode, JobHandle, JobState, TaskRef};
use redis::AsyncCommands;
use tokio::task::JoinSet;

use crate::faults::ground::proxied;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, eventually, scripts_run};

const WAITERS: usize = 2_000;

/// How long the calls of waiting handles are counted, and the bound of their number.
const WINDOW: Duration = Duration::from_secs(4);
const FEW: u64 = 30;

/// How long a single read may take next to all these waits.
const SOON: Duration = Duration::from_secs(2);

type Ended = (String, Result<u64, Error>);

/// The waiting handles, each in a task of its own.
struct Waiters(JoinSet<Ended>, BTreeMap<String, Result<u64, Error>>);

impl Waiters {
    fn of(handles: &[JobHandle<u64>]) -> Waiters {
        let wait = |job: JobHandle<u64>| async move { (job.id().to_string(), job.result().await) };
        Waiters(handles.iter().cloned().map(wait).collect(), BTreeMap::new())
    }

    /// Waits until this many of them have received the end of their jobs.
    async fn hear(&mut self, count: usize) {
        while self.1.len() < count {
            let heard = tokio::time::timeout(PATIENCE, self.0.join_next()).await;
            let (id, ended) = heard.unwrap_or_else(|_| panic!("only {} received", self.1.len())).unwrap().unwrap();
            assert!(self.1.insert(id, ended).is_none());
        }
    }

    fn was_cancelled(&self, job: &JobHandle<u64>) -> bool {
        matches!(self.1.get(job.id().as_str()), Some(Err(Error::JobCancelled { .. })))
    }
}

/// Cancels a job, which is quick however many handles wait.
async fn cancel(job: &JobHandle<u64>) {
    let answer = tokio::time::timeout(SOON, job.cancel("not wanted")).await.expect("a cancel waits for the waiters");
    assert_eq!(answer.unwrap(), CancelOutcome::Cancelled);
}

async fn wait_and_cost_little(events: EventMode) {
    let (redis, test, proxy) = proxied().await;
    let defaults = options(INTERVAL).events(events);
    let app = App::builder().redis(proxy.url()).task_defaults(defaults.clone()).build().await.unwrap();
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    // A worker of this task would have declared this.
    let mode = if events == EventMode::On { "on" } else { "off" };
    let () = test.conn().await.hset(test.key("meta"), "eventMode", mode).await.unwrap();
    test.declared().await;
    let handles = jobs.dispatch_many((0..WAITERS).map(|_| "go".to_owned())).await.unwrap();
    let mut waiters = Waiters::of(&handles);

    // Each reads its job once; afterwards all of them share few calls.
    let mut conn = test.conn().await;
    let mut counted = Vec::new();
    let given = Instant::now();
    while counted.last().is_none_or(|calls| *calls >= FEW) {
        assert!(given.elapsed() < PATIENCE, "calls in {WINDOW:?}, again and again: {counted:?}");
        let before = scripts_run(&mut conn).await;
        tokio::time::sleep(WINDOW).await;
        counted.push(scripts_run(&mut conn).await - before);
    }

    // Reads of one job are answered at once, and its waiting handle receives its end.
    let mut cancelled = Vec::new();
    for job in handles.iter().step_by(WAITERS / 5) {
        let state = tokio::time::timeout(SOON, job.state()).await.expect("a read waits for the waiters");
        assert_eq!(state.unwrap(), JobState::Waiting);
        cancel(job).await;
        cancelled.push(job);
    }
    waiters.hear(cancelled.len()).await;

    // So does the handle of a job that ends while there is no connection.
    let (_app, direct) = test.producer().await;
    let job = &handles[1];
    proxy.refuse().await;
    cancel(&direct.handle(job.id()).unwrap()).await;
    proxy.accept().await;
    cancelled.push(job);
    waiters.hear(cancelled.len()).await;
    assert!(cancelled.iter().all(|job| waiters.was_cancelled(job)), "{:?}", waiters.1);

    // So do all when a worker runs their jobs.
    let handler = async |_, ctx: heartline::Context, _| Ok(ctx.fence());
    let worker = test.start_worker_with(&redis.url(), defaults.concurrency(200), handler).await;
    waiters.hear(WAITERS).await;
    let completed = waiters.1.values().filter(|ended| ended.is_ok()).count();
    assert_eq!(completed, WAITERS - cancelled.len());
    eventually("it is recorded", PATIENCE, async || jobs.counts().await.unwrap().completed == completed as u64).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_waits_for_results_cost_few_calls() {
    wait_and_cost_little(EventMode::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_waits_without_events_cost_few_calls() {
    wait_and_cost_little(EventMode::Off).await;
}
