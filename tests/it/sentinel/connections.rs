//! How many connections a worker process has, to one server and under Sentinel.

use heartline::testing::RedisServer;

use crate::sentinel::trio::Trio;
use crate::support::census::{most, works};
use crate::support::sentinel::ask;
use crate::support::{Child, PATIENCE, eventually};

const TASKS: [&str; 5] = ["export", "mail", "video", "crawl", "billing"];

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_of_several_tasks() {
    if let Some(url) = Child::role() {
        works(&url, &TASKS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_has_at_most_four_connections_to_one_server() {
    let server = tokio::task::spawn_blocking(|| RedisServer::start().unwrap()).await.unwrap();
    let _worker = Child::start(module_path!(), "an_idle_worker_of_several_tasks", &server.url());
    let most = most(&[server.port()], 1).await;
    assert!((3..=4).contains(&most[0]), "{most:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_connects_to_the_primary_and_each_sentinel_only() {
    let trio = Trio::start().await;
    let _worker = Child::start(module_path!(), "an_idle_worker_of_several_tasks", &trio.url());
    let ports: Vec<u16> = trio.servers.iter().map(|server| server.port()).collect();
    let most = most(&ports, 1).await;
    assert!((3..=4).contains(&most[0]) && most[1..] == [0, 0], "{most:?}");
    for sentinel in &trio.sentinels {
        // Other sentinels subscribe to servers, and not to one another.
        let list = async || ask::<String>(sentinel.port, &["CLIENT", "LIST", "TYPE", "pubsub"]).await;
        let list = eventually("it answers", PATIENCE, list).await;
        assert_eq!(list.lines().count(), 1, "{list}");
    }
}
