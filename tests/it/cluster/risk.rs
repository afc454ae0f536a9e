//! What a handler sees while the primary of its task is frozen.

use crate::cluster::six::{Six, TASKS};
use crate::support::risk::Risk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_at_risk_until_the_failover_of_a_frozen_primary() {
    let six = Six::start().await;
    let risk = Risk::start(&six.cluster.url(), TASKS[0]).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    // The replica is not promoted before the handler has noticed.
    let [primary, replica] = [&six.cluster.nodes[at], &six.cluster.nodes[at + 3]];
    replica.freeze().unwrap();
    primary.freeze().unwrap();
    risk.is_there().await;
    replica.thaw().unwrap();
    six.another_than(before, TASKS[0]).await;
    risk.goes_away().await;
    primary.thaw().unwrap();
}
