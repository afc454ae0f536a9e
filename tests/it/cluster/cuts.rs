//! All connections of all processes cut at the same time.

use std::time::Duration;

use heartline::DetectorReset;

use crate::cluster::six::{Six, TASKS};
use crate::support::PATIENCE;
use crate::support::load::{Load, connected, cut};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_all_connections_are_cut_under_load() {
    let six = Six::start().await;
    let load = Load::start(&six.cluster.url(), &TASKS).await;
    load.goes_on(PATIENCE).await;
    for _ in 0..3 {
        for primary in six.ports().into_iter().take(3) {
            connected(primary, 4).await;
        }
        cut(six.ports()).await;
        load.goes_on(Duration::from_secs(3)).await;
    }
    let broken = load.broken_by(DetectorReset::ConnectionLost);
    assert!(broken.iter().all(|times| *times > 0), "{broken:?}");
    let lost = load.accounted().await;
    assert_eq!(lost.jobs, 0);
}
