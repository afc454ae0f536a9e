//! Connections that become silent without being closed, as when a firewall forgets them, while new ones work.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::faults::ground::far_away;
use crate::faults::waiting::{all_ran_once, begun, lasting, stalls, start_waiting_worker, start_witness};
use crate::support::task::{TestTask, options};
use crate::support::{Line, PATIENCE, TestRedis, eventually};

/// Long enough that a busy machine is not taken for a silent worker.
const INTERVAL: Duration = Duration::from_secs(3);

/// Waits for the moment of the next snapshot, polling faster than [`eventually`].
async fn snapshot(test: &TestTask, conn: &mut MultiplexedConnection) {
    let watched = async {
        let mut look = tokio::time::interval(Duration::from_millis(1));
        let mut epoch = async || conn.hget::<_, _, Option<u64>>(test.key("meta"), "epoch").await.unwrap();
        let before = epoch().await;
        while epoch().await == before {
            look.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, watched).await.expect("no snapshot is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_only_silent_connections_keeps_its_jobs() {
    // With this number the heartbeat of one of them comes shortly before the snapshot in any case: it has the least
    // time.
    const WORKERS: usize = 24;
    let (redis, test, line) = far_away().await;
    let witness = start_witness(&test, &redis.url(), options(INTERVAL), "go").await;
    let mut workers = vec![witness];
    for _ in 0..WORKERS {
        workers.push(start_waiting_worker(&test, &line.url(), options(INTERVAL).concurrency(1)).await);
    }
    workers[0].jobs.dispatch_many(vec!["go".to_owned(); WORKERS]).await.unwrap();
    begun(&test, WORKERS + 1, PATIENCE).await;
    let mut conn = test.conn().await;
    for _ in 0..4 {
        snapshot(&test, &mut conn).await;
        line.hush();
    }
    // The outcomes are sent over silent connections: more than two intervals pass until they are recorded.
    test.journal.open("go");
    all_ran_once(&test, WORKERS + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_with_repeatedly_silent_lines_keep_their_jobs() {
    let redis = TestRedis::start();
    let until = Instant::now() + lasting(Duration::from_secs(7));
    let rounds = [INTERVAL, 2 * INTERVAL].map(|interval| silenced_until(until, TestTask::on(&redis), &redis, interval));
    join_all(rounds).await;
}

/// Each of four lines, with three workers each, becomes silent repeatedly, with some time to recover.
async fn silenced_until(until: Instant, test: TestTask, redis: &TestRedis, interval: Duration) {
    const WORKERS: usize = 12;
    let mut workers = vec![start_witness(&test, &redis.url(), options(interval), "go").await];
    let mut lines = Vec::new();
    for worker in 0..WORKERS {
        if worker % 3 == 0 {
            lines.push(Line::start(redis.address()).await);
        }
        workers.push(start_waiting_worker(&test, &lines[worker / 3].url(), options(interval).concurrency(1)).await);
    }
    workers[0].jobs.dispatch_many(vec!["go".to_owned(); WORKERS]).await.unwrap();
    begun(&test, WORKERS + 1, PATIENCE).await;
    let conn = test.conn().await;
    join_all(lines.iter().map(|line| {
        let (test, mut conn) = (&test, conn.clone());
        async move {
            let pause = || interval.mul_f64(fastrand::f64());
            while Instant::now() < until {
                tokio::time::sleep(interval * 3 / 4 + pause()).await;
                // At any moment, and in every other round at the one with the least time: after a snapshot.
                if fastrand::bool() {
                    snapshot(test, &mut conn).await;
                    tokio::time::sleep(pause() / 4).await;
                }
                line.hush();
                assert_eq!(stalls(test, &mut conn).await, 0);
            }
        }
    }))
    .await;
    test.journal.open("go");
    all_ran_once(&test, WORKERS + 1).await;
}

/// The connections that subscribe to messages, by the list of the server.
async fn listeners(conn: &mut MultiplexedConnection) -> BTreeSet<SocketAddr> {
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query_async(conn).await.unwrap();
    let listens = list.lines().filter(|client| client.contains(" sub=1 "));
    listens
        .map(|client| client.split(' ').find_map(|word| word.strip_prefix("addr=")).unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn a_cancel_arrives_by_hint_after_a_silent_hint_connection() {
    // Without a hint a cancel would arrive with a heartbeat, ten seconds after the last one.
    let (interval, soon) = (Duration::from_secs(30), Duration::from_secs(5));
    let (_redis, test, line) = far_away().await;
    let worker = test.start_worker_at(&line.url(), options(interval)).await;
    let (_app, task) = test.producer().await;
    let job = task.dispatch("never".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let mut conn = test.conn().await;
    let old = eventually("the worker subscribes", PATIENCE, async || listeners(&mut conn).await.first().copied()).await;
    assert!(line.hush_client(old));
    // For the server the old connection stays open.
    let found = async || listeners(&mut conn).await.iter().any(|listener| *listener != old);
    eventually("the worker subscribes again", Duration::from_secs(10), found).await;
    assert_eq!(job.cancel("").await.unwrap(), heartline::CancelOutcome::Requested);
    eventually("the handler is cancelled", soon, async || !test.journal.interruptions().is_empty()).await;
    assert_eq!(test.journal.interruptions(), [format!("{} was cancelled", job.id())]);
    worker.stop().await;
}
