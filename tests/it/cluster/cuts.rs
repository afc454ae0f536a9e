//! All connections of all processes cut at the same time.

use std::time::Duration;

use heartline::DetectorReset;

use crate::cluster::six::{Six, TASKS};
use crate::support::PATIENCE;
use crate::support::load::{Load, cut};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_all_connections_are_cut_under_load() {
    let six = Six::start().await;
    let load = Load::start(&six.cluster.url(), &TASKS).await;
    load.goes_on(PATIENCE).await;
    for _ in 0..3 {
        let at_each = cut(six.ports()).await;
        assert!(at_each[..3].iter().all(|connections| *connections >= 4), "{at_each:?}");
        load.goes_on(Duration::from_secs(3)).await;
    }
    let broken = load.broken_by(DetectorReset::ConnectionLost);
    assert!(broken.iter().all(|times| *times > 0), "{broken:?}");
    let lost = load.accounted().await;
    assert_eq!(lost.jobs, 0);
}
