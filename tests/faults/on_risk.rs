//! `OnRisk::Cancel`: a handler whose beats do not get through stops before anybody else can have its job.

use std::time::Duration;

use heartline::{JobState, OnRisk, StallOptions};

use crate::site::{INTERVAL, Site, events_until, options};
use crate::support::{PATIENCE, Proxy, TestRedis, eventually};

/// Tells the journal when it is dropped.
struct Dropped(std::sync::Arc<crate::site::Journal>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[tokio::test]
async fn a_job_at_risk_is_cancelled_and_dropped_during_the_outage_and_handed_back_without_a_stall() {
    let redis = TestRedis::start();
    let site = Site::new(&redis);
    let proxy = Proxy::start(redis.address()).await;
    // The cancel grace is longer than the time that is left, which counts.
    let options = options(INTERVAL)
        .cancel_grace(Duration::from_secs(30))
        .stall(StallOptions::new().interval(INTERVAL).max_count(0).on_risk(OnRisk::Cancel));
    let worker = site
        .hire_for(&proxy.url(), options, |journal, ctx, _| async move {
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
    let (app, jobs) = site.producer().await;
    let mut events = app.events();
    let job = jobs.dispatch("job".to_owned()).await.unwrap();
    site.started(std::slice::from_ref(&job)).await;

    proxy.refuse().await;
    eventually("the handler is told and dropped", PATIENCE, async || site.journal.interruptions().len() == 2).await;
    assert_eq!(site.journal.interruptions(), ["cancelled, at risk true, heartbeat Err(AtRisk)", "dropped"]);
    assert_eq!(job.state().await.unwrap(), JobState::Running);
    proxy.accept().await;

    let second = tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    let runs = site.journal.runs_of(job.id());
    assert_eq!(runs.len(), 2);
    assert!(runs[0].fence < second && second == runs[1].fence && runs[1].stalled_count == 0, "{runs:?}");
    let seen = events_until(&mut events, job.id().as_str()).await;
    let expected = ["task:dispatched", "task:started", "task:requeued", "task:started", "task:completed"];
    assert_eq!(seen[job.id().as_str()], expected);
    assert_eq!(site.stalls().await, None);
    worker.leave().await;
    site.nothing_is_left_but(1).await;
}
