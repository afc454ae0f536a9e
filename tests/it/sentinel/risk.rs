//! What a handler hears while its primary stands still.

use crate::sentinel::trio::Trio;
use crate::support::risk::Risk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_hears_that_its_job_is_at_risk_while_its_primary_is_away_and_goes_on_behind_the_failover() {
    let trio = Trio::start().await;
    let risk = Risk::start(&trio.url(), "work").await;
    let before = trio.primary().await;
    // No replica takes over before the handler has heard of it: four of three never agree.
    trio.set("quorum", "4").await;
    trio.servers[0].freeze().unwrap();
    risk.is_there().await;
    trio.set("quorum", "2").await;
    trio.another_than(before).await;
    risk.goes_away().await;
    trio.servers[0].thaw().unwrap();
}
