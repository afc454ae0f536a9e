//! How many connections a worker process has.

use crate::cluster::six::{Six, TASKS};
use crate::support::Child;
use crate::support::census::{most, works};

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_of_several_tasks() {
    if let Some(url) = Child::role() {
        works(&url, &TASKS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_has_at_most_seven_connections_to_each_node() {
    let six = Six::start().await;
    let _worker = Child::start(module_path!(), "an_idle_worker_of_several_tasks", &six.cluster.url());
    let most = most(&six.ports(), 3).await;
    println!("{most:?}");
    // A node may have all that a worker needs only once: dispatches, cancel hints, and the reads of the map.
    assert!(most.iter().all(|connections| *connections <= 7), "{most:?}");
    assert!(most[..3].iter().all(|connections| *connections >= 3), "it works: {most:?}");
}
