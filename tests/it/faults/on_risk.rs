//! `OnLockRisk::Cancel`: a handler whose heartbeats do not arrive stops before another worker can have its job.

use std::time::Duration;

use heartline::{JobState, OnLockRisk, StallOptions};

use crate::faults::ground::proxied;
use crate::support::events::events_until;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, eventually};

/// Records its drop in the journal.
struct Dropped(std::sync::Arc<crate::support::journal::Journal>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[tokio::test]
async fn a_job_at_risk_is_dropped_and_handed_back_without_a_stall() {
    let (_redis, test, proxy) = proxied().await;
    // The cancel grace is longer than the time that is left, so the time left counts.
    let options = options(INTERVAL)
        .cancel_grace(Duration::from_secs(30))
        .stall(StallOptions::new().interval(INTERVAL).max_count(0).on_lock_risk(OnLockRisk::Cancel));
    let worker = test
        .start_worker_with(&proxy.url(), options, |journal, ctx, _| async move {
            journal.begin(&ctx);
            if journal.runs_of(ctx.id()).len() == 2 {
                return Ok(ctx.fence());
            }
            let _dropped = Dropped(journal.clone());
            ctx.cancelled().await;
            journal.note(format!("cancelled, at risk {}, heartbeat {:?}", ctx.is_at_risk(), ctx.heartbeat()));
            std::future::pending().await
        })
        .await;
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    let job = jobs.dispatch("job".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;

    proxy.refuse().await;
    eventually("the handler is cancelled and dropped", PATIENCE, async || test.journal.interruptions().len() == 2)
        .await;
    assert_eq!(test.journal.interruptions(), ["cancelled, at risk true, heartbeat Err(AtRisk)", "dropped"]);
    assert_eq!(job.state().await.unwrap(), JobState::Running);
    proxy.accept().await;

    let second = tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    let runs = test.journal.runs_of(job.id());
    assert_eq!(runs.len(), 2);
    assert!(runs[0].fence < second && second == runs[1].fence && runs[1].stalled_count == 0, "{runs:?}");
    let seen = events_until(&mut events, job.id().as_str()).await;
    let expected = ["task:dispatched", "task:started", "task:requeued", "task:started", "task:completed"];
    assert_eq!(seen[job.id().as_str()], expected);
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
    test.nothing_is_left_but(1).await;
}
