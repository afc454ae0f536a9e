//! The last calls of a worker: on a full server, and over connections that drop meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heartline::StopReason;
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};

/// What a stopped worker leaves.
struct Left {
    /// The records of its calls.
    rows: BTreeMap<String, String>,
    presence: BTreeMap<String, String>,
    /// Whether it is in the list by which other workers remove what it left.
    listed: bool,
}

async fn left_of(test: &TestTask, worker: &str) -> Left {
    let mut conn = test.conn().await;
    let all: BTreeMap<String, String> = conn.hgetall(test.key("replies")).await.unwrap();
    let rows = all.into_iter().filter(|(line, _)| line.split('/').next() == Some(worker)).collect();
    let presence = conn.hgetall(format!("heartline:worker:{worker}")).await.unwrap();
    let score: Option<f64> = conn.zscore("heartline:workers", worker).await.unwrap();
    Left { rows, presence, listed: score.is_some() }
}

/// Late calls of it are refused, and it does not count as running.
async fn said_goodbye(test: &TestTask, worker: &str) {
    let left = left_of(test, worker).await;
    assert_eq!(left.rows.get(worker).map(String::as_str), Some("closed"), "{:?}", left.rows);
    assert!(left.rows.values().all(|row| row == "closed"), "{:?}", left.rows);
    let presence = &left.presence;
    assert!(presence.is_empty() || presence.contains_key("stoppedAt"), "it counts as running: {presence:?}");
    assert!(presence.is_empty() || left.listed, "no worker will remove {presence:?}");
}

/// It waits only for a claim without a reply.
#[tokio::test]
async fn an_idle_worker_stops_within_its_grace_during_an_outage() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let options =
        options(Duration::from_secs(30)).shutdown_grace(Duration::from_millis(100)).cancel_grace(PATIENCE * 3);
    let mut hold = proxy.hold_next_reply_to(test.sha("settle").await);
    let app = test.app_at(&proxy.url()).await;
    test.declare_at(&app, options);
    let worker = TestWorker::start(app.worker());
    hold.happened().await;
    proxy.pause();
    let stopped =
        tokio::time::timeout(PATIENCE, worker.begin_stop()).await.expect("it waits for redis").unwrap().unwrap();
    assert!(matches!(&stopped, StopReason::Unclean { left } if left.is_empty()), "{stopped:?}");
}

#[tokio::test]
async fn clean_stops_on_a_full_server_leave_records_to_be_removed() {
    const STOPS: usize = 5;
    let (redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    let ids: Vec<String> = (0..STOPS).map(|at| format!("{at}-{}", "x".repeat(100))).collect();
    let handles = jobs.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), id.clone()))).await.unwrap();
    let mut conn = test.conn().await;
    let mut limit = redis::cmd("CONFIG");
    let () = limit.arg("SET").arg("maxmemory").arg(1).query_async(&mut conn).await.unwrap();

    let options = options(INTERVAL).concurrency(1).shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO);
    let mut workers = BTreeSet::new();
    for job in &handles {
        let worker = test.start_worker_at(&redis.url(), options.clone()).await;
        // Each worker claims one job, records it, and hands the next one back.
        test.journal.open(job.id().as_str());
        tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
        workers.insert(worker.id.clone());
        worker.stop().await;
    }
    let rows: BTreeMap<String, String> = conn.hgetall(test.key("replies")).await.unwrap();
    for (line, row) in &rows {
        assert_eq!(row, "closed", "the record of {line} was left");
        let worker = line.split('/').next().unwrap();
        assert!(workers.contains(worker), "{line}");
        assert!(left_of(&test, worker).await.listed, "no worker will remove the rows of {worker}");
    }
    test.nothing_is_left_but(STOPS).await;
}

#[tokio::test]
async fn a_worker_that_stops_without_connections_is_listed_as_stopped() {
    let (_redis, test) = alone();
    for round in 0..3 {
        let worker = test.start_worker(options(INTERVAL)).await;
        let mut conn = test.conn().await;
        for pause in [110, 230, 340, 130 * round] {
            for kind in ["normal", "pubsub"] {
                let mut kill = redis::cmd("CLIENT");
                let _: usize = kill.arg("KILL").arg("TYPE").arg(kind).query_async(&mut conn).await.unwrap();
            }
            // Each time at another point between two heartbeats.
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let mut kill = redis::cmd("CLIENT");
        let _: usize = kill.arg("KILL").arg("TYPE").arg("normal").query_async(&mut conn).await.unwrap();
        let id = worker.id.clone();
        worker.stop().await;
        said_goodbye(&test, &id).await;
    }
}

#[tokio::test]
async fn a_worker_whose_first_farewell_is_lost_sends_it_again() {
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    worker.working().await;
    eventually("it has looked for work", PATIENCE, async || !left_of(&test, &worker.id).await.rows.is_empty()).await;
    let id = worker.id.clone();
    // Only the farewell: other calls of a stopping worker may be given up with their connection.
    let cut = proxy.cut_next_reply_matching(|request| {
        let text = String::from_utf8_lossy(request);
        text.contains("stoppedAt\r\n") || text.contains("closed\r\n")
    });
    worker.stop().await;
    cut.happened().await;
    said_goodbye(&test, &id).await;
}

#[tokio::test]
async fn a_worker_frozen_during_its_farewell_sends_it_afterwards() {
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    worker.working().await;
    let id = worker.id.clone();
    // The first half of the farewell is sent; its reply arrives when the process runs again.
    let mut half = proxy.hold_next_reply_to("ZREM\r\n");
    let stopping = tokio::spawn(worker.stop());
    half.happened().await;
    // This thread also runs the worker.
    std::thread::sleep(Duration::from_secs(4));
    drop(half);
    stopping.await.unwrap();
    said_goodbye(&test, &id).await;
}
