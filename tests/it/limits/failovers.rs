//! Keys keep their limits, and none loses a slot, when another server becomes the primary.

use std::time::Instant;

use crate::cluster::six::Six;
use crate::limits::children::Held;
use crate::limits::traffic::Traffic;
use crate::sentinel::trio::Trio;
use crate::support::sentinel::ask;
use crate::support::task::TASK;
use crate::support::{PATIENCE, TestRedis, eventually};

/// No job is held in these tables on the server at this port.
async fn are_empty(port: u16, tag: &str) {
    let mut conn = TestRedis::conn_to(&format!("redis://127.0.0.1:{port}")).await;
    assert_eq!(Held::read(&mut conn, tag).await, Held::default());
}

/// Returns how many jobs the server lost. All were acknowledged before the processes left the old primary.
async fn continues_after(replicas: Option<u32>, failover: impl AsyncFnOnce(&mut Trio)) -> usize {
    let mut trio = Trio::start().await;
    let traffic = Traffic::start(trio.url(), None, replicas).await;
    traffic.continues().await;
    let before = trio.servers[0].port();
    failover(&mut trio).await;
    trio.another_than(before).await;
    leave(before).await;
    let left = Instant::now();
    traffic.continues().await;
    traffic.log.changes().await;
    let lost = traffic.accounted().await;
    are_empty(trio.another_than(before).await, &format!("heartline:{{{TASK}}}")).await;
    assert!(lost.iter().all(|acknowledged| *acknowledged < left));
    lost.len()
}

/// Waits until no process is connected to the old primary. In a failover in order, it accepts writes for some time.
pub async fn leave(old: u16) {
    let left = async || {
        let clients: Option<String> = ask(old, &["CLIENT", "LIST"]).await;
        clients.is_none_or(|clients| !clients.contains(" name=heartline:"))
    };
    eventually("all leave the old primary", PATIENCE, left).await;
}

/// A replica has all that is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_keep_their_limits_after_the_primary_is_killed() {
    let lost = continues_after(Some(1), async |trio: &mut Trio| trio.servers[0].kill()).await;
    assert_eq!(lost, 0);
}

/// The old primary loses what it accepts after the promotion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_keep_their_limits_after_a_failover_in_order() {
    continues_after(None, async |trio: &mut Trio| trio.fail_over().await).await;
}

/// Without copies: each primary has one replica, which becomes the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_partition_keep_their_limits_when_its_node_dies() {
    let mut six = Six::start().await;
    let traffic = Traffic::start(six.cluster.url(), Some(3), None).await;
    traffic.continues().await;
    let (at, before) = six.home_of(TASK).await;
    six.cluster.nodes[at].kill();
    let now = six.another_than(before, TASK).await;
    let promoted = Instant::now();
    traffic.continues().await;
    traffic.log.changes().await;
    assert!(traffic.accounted().await.iter().all(|acknowledged| *acknowledged < promoted));
    are_empty(now, &format!("heartline:{{{TASK}}}")).await;
}
