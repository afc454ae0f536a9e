//! What a handler hears while the primary of its task stands still.

use crate::cluster::six::{Six, TASKS};
use crate::support::risk::Risk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_hears_that_its_job_is_at_risk_while_its_primary_is_away_and_goes_on_behind_the_failover() {
    let six = Six::start().await;
    let risk = Risk::start(&six.cluster.url(), TASKS[0]).await;
    let before = six.primary_of(TASKS[0], six.ports()[0]).await.unwrap();
    let at = six.ports().iter().position(|port| *port == before).unwrap();
    // The replica takes over no sooner than the handler has heard of it.
    let [primary, replica] = [&six.cluster.nodes[at], &six.cluster.nodes[at + 3]];
    replica.freeze().unwrap();
    primary.freeze().unwrap();
    risk.is_there().await;
    replica.thaw().unwrap();
    six.another_than(before, TASKS[0]).await;
    risk.goes_away().await;
    primary.thaw().unwrap();
}
