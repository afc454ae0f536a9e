//! Workers that live shorter than an interval.

use std::time::Duration;

use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::support::task::options;

/// A worker resolves a job only after it has watched it for a whole interval.
#[tokio::test]
async fn short_lived_workers_resolve_nothing_but_a_lasting_one_does() {
    const INTERVAL: Duration = Duration::from_secs(2);
    /// With start and stop, each lives for about half an interval, on a slow machine for less than a whole one.
    const STAY: Duration = Duration::from_millis(700);
    let (_redis, test) = alone();
    let mut conn = test.conn().await;
    let (_app, jobs) = test.producer().await;
    test.journal.open("go");
    // A job of a worker that died without a record.
    let () = conn.hset(test.key("payload"), "orphan", "\"go\"").await.unwrap();
    let () = conn.hset(test.key("locks"), "orphan", "gone-4242-0a1b2c3d:1").await.unwrap();
    let () = conn.sadd(test.key("active"), "orphan").await.unwrap();

    // In total longer than the two intervals and a heartbeat after which a lasting worker resolves.
    for _ in 0..7 {
        let worker = test.start_worker(options(INTERVAL)).await;
        tokio::time::sleep(STAY).await;
        worker.stop().await;
    }
    assert_eq!((test.epoch().await, test.dump("stalls").await), (0, None));

    let stays = test.start_worker(options(INTERVAL)).await;
    let orphan = jobs.handle("orphan").unwrap();
    tokio::time::timeout(INTERVAL * 10, orphan.result()).await.expect("no worker resolves it").unwrap();
    let runs = test.journal.runs_of("orphan");
    assert_eq!(runs.iter().map(|run| (&run.worker, run.stalled_count)).collect::<Vec<_>>(), [(&stays.id, 1)]);
    stays.stop().await;
    test.nothing_is_left_but(1).await;
}
