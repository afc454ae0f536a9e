//! Workers of one task whose intervals differ, as during a rolling deploy.

use std::time::Duration;

use heartline::JobHandle;

use crate::support::task::{INTERVAL, TaskWorker, TestTask, options};
use crate::support::{PATIENCE, TestRedis, eventually};

const SLOW: Duration = Duration::from_secs(5);

/// A worker with one slot, and the long job in it.
struct Busy {
    worker: TaskWorker,
    job: JobHandle<u64>,
    gate: String,
}

async fn join(test: &TestTask, interval: Duration, gate: &str) -> Busy {
    let worker = test.start_worker(options(interval).concurrency(1)).await;
    hold(test, worker, gate).await
}

async fn hold(test: &TestTask, worker: TaskWorker, gate: &str) -> Busy {
    let job = worker.jobs.dispatch(gate.to_owned()).id(gate).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    // The slots of all earlier workers are taken.
    assert_eq!(test.journal.runs_of(gate)[0].worker, worker.id);
    Busy { worker, job, gate: gate.to_owned() }
}

async fn leave(test: &TestTask, busy: Busy) -> JobHandle<u64> {
    test.journal.open(&busy.gate);
    tokio::time::timeout(PATIENCE, busy.job.result()).await.unwrap().unwrap();
    busy.worker.stop().await;
    busy.job
}

async fn in_force(test: &TestTask, interval: Duration) {
    eventually("the interval is in force", PATIENCE, async || test.interval_in_force().await == interval).await;
}

/// One worker joins, then the other; one leaves, and the other continues.
async fn in_order(test: TestTask, joins: [Duration; 2], first_leaves: bool) {
    let first = join(&test, joins[0], "first").await;
    if joins[0] == INTERVAL {
        // An epoch of the short interval runs, which must not catch the second worker.
        test.epochs_pass(1).await;
    }
    let second = join(&test, joins[1], "second").await;
    // The larger interval applies from the claim on.
    assert_eq!(test.interval_in_force().await, SLOW);
    test.epochs_pass(2).await;
    let (goes, stays, left) = if first_leaves { (first, second, joins[1]) } else { (second, first, joins[0]) };
    let mut jobs = vec![leave(&test, goes).await];
    in_force(&test, left).await;
    test.epochs_pass(1).await;
    jobs.push(leave(&test, stays).await);
    test.each_ran_once(&jobs).await;
    test.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn workers_with_unequal_intervals_cause_no_false_stall() {
    let (redis, its_own) = (TestRedis::start(), TestRedis::start());
    tokio::join!(
        in_order(TestTask::on(&redis), [INTERVAL, SLOW], true),
        in_order(TestTask::on(&redis), [INTERVAL, SLOW], false),
        in_order(TestTask::on(&redis), [SLOW, INTERVAL], true),
        in_order(TestTask::on(&redis), [SLOW, INTERVAL], false),
        comes_and_goes(TestTask::on(&redis)),
        hands_over(TestTask::on(&its_own)),
    );
}

/// The fast worker keeps its job while the slow one joins and leaves, each time at another point of an epoch.
async fn comes_and_goes(test: TestTask) {
    let fast = join(&test, INTERVAL, "fast").await;
    let mut jobs = Vec::new();
    for round in 0..3 {
        let slow = join(&test, SLOW, &format!("slow-{round}")).await;
        test.epochs_pass(1).await;
        jobs.push(leave(&test, slow).await);
    }
    jobs.push(leave(&test, fast).await);
    test.each_ran_once(&jobs).await;
    test.nothing_is_left_but(jobs.len()).await;
}

/// The slow worker loses its connections, so that the fast one sweeps at the worst point: just after a heartbeat of
/// the slow one, with more than the short interval until the next.
async fn hands_over(test: TestTask) {
    let slow = join(&test, SLOW, "slow").await;
    let mut conn = test.conn().await;
    // This server has only the connections of the slow worker, and ours, which stays open.
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query_async(&mut conn).await.unwrap();
    // Three heartbeats of the slow worker take five seconds, so at the next sweep the phase is the same.
    tokio::time::sleep(INTERVAL * 3 / 10).await;
    let fast = join(&test, INTERVAL, "fast").await;
    let before = test.epoch().await;
    for id in list.lines().filter_map(|client| client.split_whitespace().next()?.strip_prefix("id=")) {
        let _: usize = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query_async(&mut conn).await.unwrap();
    }
    test.epochs_pass(2).await;
    assert!(test.epoch().await < before + 4, "the sweep ignored the long interval");
    let jobs = [leave(&test, slow).await, leave(&test, fast).await];
    test.each_ran_once(&jobs).await;
    test.nothing_is_left_but(2).await;
}
