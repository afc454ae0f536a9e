//! Workers of one task whose intervals differ, as during a rolling deploy.

use std::time::Duration;

use heartline::JobHandle;

use crate::site::{Employee, INTERVAL, Site, options};
use crate::support::{PATIENCE, TestRedis, eventually};

const SLOW: Duration = Duration::from_secs(5);

/// A worker with one slot, and the long job in it.
struct Busy {
    worker: Employee,
    job: JobHandle<u64>,
    gate: String,
}

async fn join(site: &Site, interval: Duration, gate: &str) -> Busy {
    let worker = site.hire(options(interval).concurrency(1)).await;
    hold(site, worker, gate).await
}

async fn hold(site: &Site, worker: Employee, gate: &str) -> Busy {
    let job = worker.jobs.dispatch(gate.to_owned()).id(gate).await.unwrap();
    site.started(std::slice::from_ref(&job)).await;
    // The slots of all workers that were there before are taken.
    assert_eq!(site.journal.runs_of(gate)[0].worker, worker.id);
    Busy { worker, job, gate: gate.to_owned() }
}

async fn leave(site: &Site, busy: Busy) -> JobHandle<u64> {
    site.journal.open(&busy.gate);
    tokio::time::timeout(PATIENCE, busy.job.result()).await.unwrap().unwrap();
    busy.worker.leave().await;
    busy.job
}

async fn in_force(site: &Site, interval: Duration) {
    eventually("the interval is in force", PATIENCE, async || site.interval_in_force().await == interval).await;
}

/// One joins, then the other; one of them leaves, and the other goes on.
async fn in_order(site: Site, joins: [Duration; 2], first_leaves: bool) {
    let first = join(&site, joins[0], "first").await;
    if joins[0] == INTERVAL {
        // There is an epoch of the short interval to be caught by.
        site.epochs_pass(1).await;
    }
    let second = join(&site, joins[1], "second").await;
    // The larger counts from the claim on.
    assert_eq!(site.interval_in_force().await, SLOW);
    site.epochs_pass(2).await;
    let (goes, stays, left) = if first_leaves { (first, second, joins[1]) } else { (second, first, joins[0]) };
    let mut jobs = vec![leave(&site, goes).await];
    in_force(&site, left).await;
    site.epochs_pass(1).await;
    jobs.push(leave(&site, stays).await);
    site.each_ran_once(&jobs).await;
    site.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn workers_with_intervals_of_one_and_five_seconds_join_and_leave_in_any_order_without_a_false_stall() {
    let (redis, its_own) = (TestRedis::start(), TestRedis::start());
    tokio::join!(
        in_order(Site::new(&redis), [INTERVAL, SLOW], true),
        in_order(Site::new(&redis), [INTERVAL, SLOW], false),
        in_order(Site::new(&redis), [SLOW, INTERVAL], true),
        in_order(Site::new(&redis), [SLOW, INTERVAL], false),
        comes_and_goes(Site::new(&redis)),
        hands_over(Site::new(&its_own)),
    );
}

/// The fast one stays with its job while the slow one comes and goes, each time at another point of an epoch.
async fn comes_and_goes(site: Site) {
    let fast = join(&site, INTERVAL, "fast").await;
    let mut jobs = Vec::new();
    for round in 0..3 {
        let slow = join(&site, SLOW, &format!("slow-{round}")).await;
        site.epochs_pass(1).await;
        jobs.push(leave(&site, slow).await);
    }
    jobs.push(leave(&site, fast).await);
    site.each_ran_once(&jobs).await;
    site.nothing_is_left_but(jobs.len()).await;
}

/// The slow one loses its connections, so that the fast one sweeps, at the worst point between two beats of the slow one:
/// shortly behind one, with more than the short interval to go until the next.
async fn hands_over(site: Site) {
    let slow = join(&site, SLOW, "slow").await;
    let mut conn = site.conn().await;
    // On a server of its own these are the connections of the slow one, and ours, which is spared.
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query_async(&mut conn).await.unwrap();
    // Three beats of the slow one are five seconds: at the sweep of the fast one it is as long behind its beat as now.
    tokio::time::sleep(INTERVAL * 3 / 10).await;
    let fast = join(&site, INTERVAL, "fast").await;
    let before = site.epoch().await;
    for id in list.lines().filter_map(|client| client.split_whitespace().next()?.strip_prefix("id=")) {
        let _: usize = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query_async(&mut conn).await.unwrap();
    }
    site.epochs_pass(2).await;
    assert!(site.epoch().await < before + 4, "the long interval was not waited for");
    let jobs = [leave(&site, slow).await, leave(&site, fast).await];
    site.each_ran_once(&jobs).await;
    site.nothing_is_left_but(2).await;
}
