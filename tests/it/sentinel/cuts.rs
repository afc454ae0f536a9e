//! All connections of all processes cut at the same time, and a sentinel that dies.

use std::time::Duration;

use heartline::DetectorReset;

use crate::sentinel::trio::Trio;
use crate::support::load::{Load, connected, cut};
use crate::support::sentinel::DOWN_AFTER;
use crate::support::{PATIENCE, eventually};

const TASK: &str = "work";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_all_connections_are_cut_under_load() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    for _ in 0..3 {
        connected(trio.servers[0].port(), 4).await;
        cut(trio.servers.iter().map(|server| server.port())).await;
        // Connections that were just cut are not back yet.
        for sentinel in &trio.sentinels {
            let is_cut = async || cut([sentinel.port]).await[0] > 0;
            eventually("a subscription to the sentinel is cut", PATIENCE, is_cut).await;
        }
        load.goes_on(Duration::from_secs(3)).await;
    }
    assert!(load.broken_by(DetectorReset::ConnectionLost)[0] > 0);
    let lost = load.accounted().await;
    assert_eq!(lost.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_when_a_sentinel_and_then_the_primary_die() {
    let mut trio = Trio::start().await;
    // The first sentinel of the address.
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    drop(trio.sentinels.remove(0));
    load.goes_on(Duration::from_secs(3)).await;
    // The two that are left must agree. If each votes for itself, they soon hold another election.
    trio.set("failover-timeout", "2000").await;
    let before = trio.servers[0].port();
    trio.servers[0].kill();
    tokio::time::timeout(DOWN_AFTER + Duration::from_secs(14), trio.another_than(before)).await.unwrap();
    load.goes_on(Duration::from_secs(3)).await;
    // Writes that had not reached the replicas.
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(1), "{:?}", lost.over);
}
