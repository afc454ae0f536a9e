//! Handlers that use up tokio's budget at every poll. They yield, so everything that stops a handler must reach them.

use std::sync::Arc;
use std::time::Duration;

use heartline::{CancelOutcome, Context, Error, JobError, JobState, OnLockRisk, StallOptions, TaskOptions, codes};
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::journal::Journal;
use crate::support::task::{INTERVAL, TaskWorker, TestTask, options};
use crate::support::{PATIENCE, eventually};

const GRACE: Duration = Duration::from_millis(100);

/// What the handlers do all the time.
const KINDS: [&str; 2] = ["copies", "consumes"];

/// Records its drop in the journal.
struct Dropped(Arc<Journal>, String);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note(format!("{} dropped", self.1));
    }
}

async fn greedy(journal: Arc<Journal>, ctx: Context, what: String) -> Result<u64, JobError> {
    journal.begin(&ctx);
    // After a requeue it behaves well.
    let what = if journal.runs_of(ctx.id()).len() > 1 { "fine".to_owned() } else { what };
    let _dropped = Dropped(journal, ctx.id().to_string());
    match what.as_str() {
        "fine" => return Ok(ctx.fence()),
        "copies" => {
            tokio::io::copy(&mut tokio::io::repeat(0), &mut tokio::io::sink()).await?;
        }
        _ => loop {
            tokio::task::consume_budget().await;
        },
    }
    Ok(0)
}

/// A worker with a slot for each kind.
async fn start_greedy(test: &TestTask, url: &str, options: TaskOptions) -> TaskWorker {
    test.start_worker_with(url, options.concurrency(KINDS.len()).cancel_grace(GRACE), greedy).await
}

/// A job of each kind, with its name as id; all of them run.
async fn run(test: &TestTask, worker: &TaskWorker) -> Vec<heartline::JobHandle<u64>> {
    let jobs = KINDS.map(|kind| (kind.to_owned(), kind.to_owned()));
    let handles = worker.jobs.dispatch_many_with_ids(jobs).await.unwrap();
    test.started(&handles).await;
    handles
}

/// Every slot is free for a job that ends.
async fn slots_are_free(test: &TestTask, worker: TaskWorker) {
    let fine = worker.jobs.dispatch_many(KINDS.map(|_| "fine".to_owned())).await.unwrap();
    for job in &fine {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("the slots are still taken").unwrap();
    }
    for kind in KINDS {
        let told = test.journal.interruptions();
        assert!(told.contains(&format!("{kind} dropped")), "{told:?}");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_spends_its_budget_times_out() {
    let (redis, test) = alone();
    let worker = start_greedy(&test, &redis.url(), options(INTERVAL).timeout(INTERVAL)).await;
    for job in run(&test, &worker).await {
        match tokio::time::timeout(PATIENCE, job.result()).await.expect("it runs forever") {
            Err(Error::JobFailed(failure)) => assert_eq!(failure.code, codes::TIMEOUT),
            other => panic!("{other:?}"),
        }
    }
    slots_are_free(&test, worker).await;
    assert_eq!(test.dump("stalls").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_spends_its_budget_is_dropped_on_cancel() {
    let (redis, test) = alone();
    let worker = start_greedy(&test, &redis.url(), options(INTERVAL)).await;
    for job in run(&test, &worker).await {
        assert_eq!(job.cancel("enough").await.unwrap(), CancelOutcome::Requested);
        match tokio::time::timeout(PATIENCE, job.result()).await.expect("it runs forever") {
            Err(Error::JobCancelled { reason, .. }) => assert_eq!(reason, "enough"),
            other => panic!("{other:?}"),
        }
    }
    slots_are_free(&test, worker).await;
    assert_eq!(test.dump("stalls").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_spends_its_budget_is_dropped_on_a_lost_job() {
    let (redis, test) = alone();
    let worker = start_greedy(&test, &redis.url(), options(INTERVAL)).await;
    run(&test, &worker).await;
    let mut conn = test.conn().await;
    for kind in KINDS {
        let () = conn.hset(test.key("locks"), kind, "somebody-else-1-0a1b2c3d:1").await.unwrap();
    }
    eventually("both are dropped", PATIENCE, async || test.journal.interruptions().len() == KINDS.len()).await;
    slots_are_free(&test, worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_spends_its_budget_is_dropped_in_an_outage() {
    let (_redis, test, proxy) = proxied().await;
    let gives_up = StallOptions::new().interval(INTERVAL).max_count(0).on_lock_risk(OnLockRisk::Cancel);
    let worker = start_greedy(&test, &proxy.url(), options(INTERVAL).stall(gives_up)).await;
    let (_app, jobs) = test.producer().await;
    run(&test, &worker).await;
    proxy.refuse().await;
    eventually("both are dropped", PATIENCE, async || test.journal.interruptions().len() == KINDS.len()).await;
    for kind in KINDS {
        assert_eq!(jobs.handle(kind).unwrap().state().await.unwrap(), JobState::Running);
    }
    proxy.accept().await;
    for kind in KINDS {
        let ended = tokio::time::timeout(PATIENCE, jobs.handle(kind).unwrap().result()).await;
        ended.expect("it was not requeued").unwrap();
    }
    assert_eq!(test.dump("stalls").await, None);
    slots_are_free(&test, worker).await;
}
