//! What a handler sees while its primary is frozen.

use crate::sentinel::trio::Trio;
use crate::support::risk::Risk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_at_risk_until_the_failover_of_a_frozen_primary() {
    let trio = Trio::start().await;
    let risk = Risk::start(&trio.url(), "work").await;
    let before = trio.primary().await;
    // No replica is promoted before the handler has noticed: four of three never agree.
    trio.set("quorum", "4").await;
    trio.servers[0].freeze().unwrap();
    risk.is_there().await;
    trio.set("quorum", "2").await;
    trio.another_than(before).await;
    risk.goes_away().await;
    trio.servers[0].thaw().unwrap();
}
