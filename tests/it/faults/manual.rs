//! `Heartbeat::Manual`: the handler itself must send heartbeats.

use std::sync::Arc;
use std::time::Duration;

use heartline::{Error, Heartbeat, JobValues, StallAction, StallOptions, StallReason, TaskOptions, codes};

use crate::faults::ground::{alone, proxied};
use crate::support::PATIENCE;
use crate::support::journal::Journal;
use crate::support::task::{INTERVAL, TWO_INTERVALS, options};

const GRACE: Duration = Duration::from_millis(300);

fn manual(max_count: u32) -> TaskOptions {
    options(INTERVAL)
        .concurrency(1)
        .cancel_grace(GRACE)
        .stall(StallOptions::new().interval(INTERVAL).max_count(max_count).heartbeat(Heartbeat::Manual))
}

/// Records its drop in the journal.
struct Dropped(Arc<Journal>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[tokio::test]
async fn a_handler_that_hangs_is_cancelled_and_frees_its_slot() {
    let (redis, test) = alone();
    let worker = test
        .start_worker_with(&redis.url(), manual(1), |journal, ctx, what| async move {
            journal.begin(&ctx);
            if what == "fine" {
                return Ok(ctx.fence());
            }
            let _dropped = Dropped(journal.clone());
            ctx.cancelled().await;
            journal.note(format!("cancelled: {:?}", ctx.heartbeat()));
            std::future::pending().await
        })
        .await;
    let mut stalled = worker.app.on_stalled();
    let hung = worker.jobs.dispatch("hang".to_owned()).await.unwrap();
    let fine = worker.jobs.dispatch("fine".to_owned()).await.unwrap();
    for (count, action) in [(1, StallAction::Recovered), (2, StallAction::Failed)] {
        let event = tokio::time::timeout(PATIENCE, stalled.recv()).await.expect("nothing was found").unwrap();
        assert_eq!((&event.id, event.stalled_count, event.action), (hung.id(), count, action));
        assert_eq!(
            (event.reason, event.worker.as_ref().map(AsRef::as_ref)),
            (StallReason::HandlerSilent, Some(worker.id.as_str()))
        );
    }
    // There is one slot: it is free when the second hung run is gone.
    tokio::time::timeout(PATIENCE, fine.result()).await.expect("the slot is still taken").unwrap();
    let told = ["cancelled: Err(Lost)", "dropped", "cancelled: Err(Lost)", "dropped"];
    assert_eq!(test.journal.interruptions(), told);
    let Err(Error::JobFailed(failure)) = hung.result().await else { panic!("the hung job did not fail") };
    assert_eq!((failure.code.as_str(), failure.stalled_count, failure.failed_attempts), (codes::WORKER_CRASHED, 2, 0));
    // No worker died, so nothing warns of a retry.
    let inspector = worker.app.inspector();
    let report = inspector.job(worker.jobs.name(), hung.id().as_str(), JobValues::None).await.unwrap().unwrap();
    assert_eq!(inspector.diagnose_job(&report).await.unwrap(), []);
    let runs = test.journal.runs_of(hung.id());
    assert_eq!(runs.iter().map(|run| run.stalled_count).collect::<Vec<_>>(), [0, 1]);
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_that_is_silent_during_an_outage_counts_no_stall() {
    let (_redis, test, proxy) = proxied().await;
    let start = async || {
        let handler = |journal: Arc<Journal>, ctx: heartline::Context, _| async move {
            journal.begin(&ctx);
            ctx.heartbeat()?;
            // It hangs through the outage, and continues after it.
            tokio::select! {
                () = journal.opened("back") => {}
                () = ctx.cancelled() => journal.note("cancelled"),
            }
            journal.work(ctx, "go".to_owned()).await
        };
        test.start_worker_with(&proxy.url(), manual(0), handler).await
    };
    let worker = start().await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch(String::new()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    // A second worker in the same outage would be as good a witness as the first.
    let witness = start().await;
    witness.working().await;
    proxy.refuse().await;
    tokio::time::sleep(TWO_INTERVALS).await;
    assert_eq!(test.dump("stalls").await, None);
    proxy.accept().await;
    test.journal.open("back");
    test.epochs_pass(3).await;
    test.journal.open("go");
    let value = tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    let runs = test.journal.runs_of(job.id());
    assert!(runs.iter().all(|run| run.fence == value), "{runs:?}");
    assert_eq!((test.journal.interruptions().len(), test.dump("stalls").await), (0, None));
    worker.stop().await;
    witness.stop().await;
    test.nothing_is_left_but(1).await;
}
