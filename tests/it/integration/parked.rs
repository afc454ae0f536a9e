//! Silent jobs that wait for the decision of a person.

use heartline::{
    Inconsistency, Inspector, JobState, JobValues, RefusalReason, SilentJob, SilentSelection, StallAction,
    StallOptions, StallReason,
};

use crate::support::puppet::{Puppet, Token};
use crate::support::task::{INTERVAL, TASK, TaskWorker, TestTask, fast, fast_with};
use crate::support::{PATIENCE, eventually};

/// A worker of a task that recovers nothing by itself, and a dead worker that holds these jobs.
async fn held_by_the_dead(stall: StallOptions, ids: &[&str]) -> (TestTask, TaskWorker, Puppet, Vec<Token>) {
    let test = TestTask::new();
    test.journal.open("x");
    let (_app, task) = test.producer().await;
    for id in ids {
        task.dispatch("x".into()).id(*id).await.unwrap();
    }
    let mut dead = Puppet::of(&test).await;
    let held = dead.claim_all(ids).await;
    let worker = test.start_worker(fast_with(stall)).await;
    (test, worker, dead, held)
}

async fn parked_jobs(inspector: &Inspector) -> Vec<SilentJob> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = inspector.silent_jobs(TASK, cursor.as_deref()).await.unwrap();
        found.extend(page.jobs.into_iter().filter(|job| job.is_parked));
        cursor = page.next;
        if cursor.is_none() {
            found.sort_by_key(|job| job.id.to_string());
            return found;
        }
    }
}

async fn until_parked(inspector: &Inspector, jobs: usize) -> Vec<SilentJob> {
    eventually("jobs wait for a decision", PATIENCE, async || parked_jobs(inspector).await.len() == jobs).await;
    parked_jobs(inspector).await
}

#[tokio::test]
async fn jobs_stay_with_a_dead_worker_until_a_person_decides() {
    let off = StallOptions::new().recover_running(false);
    let (test, worker, dead, held) = held_by_the_dead(off, &["again", "fails", "stays"]).await;
    let inspector = worker.app.inspector().by("ada");
    let found = until_parked(&inspector, 3).await;
    assert_eq!((found[0].worker.as_ref().unwrap().as_str(), found[0].fence), (&*dead.name, Some(held[0].fence)));
    assert!(found[0].silent_since > found[0].started_at && !found[0].is_claimed, "{:?}", found[0]);
    let since: Vec<_> = found.iter().map(|job| job.silent_since).collect();
    // They wait however long no person decides.
    test.epochs_pass(2).await;
    let found = until_parked(&inspector, 3).await;
    assert_eq!(found.iter().map(|job| job.silent_since).collect::<Vec<_>>(), since);
    assert!(test.stalls().await.is_empty());

    let report = inspector.recover_running(TASK, SilentSelection::ids(["again"])).await.unwrap();
    assert_eq!((report.done, report.refused, report.swept_by_worker), (1, 0, false), "{report:?}");
    let report = inspector.fail_running(TASK, SilentSelection::ids(["fails"])).await.unwrap();
    assert_eq!((report.done, report.refused), (1, 0), "{report:?}");
    worker.jobs.handle("again").unwrap().result().await.unwrap();
    let job = inspector.job(TASK, "fails", JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.state, job.error.unwrap().code.as_str()), (JobState::Failed, "worker_crashed"));
    let stall = inspector.stall_history(TASK, "again").await.unwrap().remove(0);
    assert_eq!((stall.stall.action, stall.stall.reason), (StallAction::Recovered, StallReason::Manual));
    assert_eq!((stall.by.as_deref(), stall.watched, stall.snapshot_at), (Some("ada"), None, since[0]));
    assert!(stall.to_string().contains("; it was silent since the snapshot "), "{stall}");
    assert_eq!(test.places("stays").await, ["running"]);
    // All remaining jobs.
    let report = inspector.recover_running(TASK, SilentSelection::all()).await.unwrap();
    assert_eq!((report.done, report.refused), (1, 0), "{report:?}");
    worker.jobs.handle("stays").unwrap().result().await.unwrap();
    let audit = inspector.audit(TASK).await.unwrap();
    // The dead worker is a puppet, which is in no list of workers.
    assert!(audit.findings().all(|finding| finding.fault == Inconsistency::StaleRecord), "{audit:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_person_overtaken_by_a_sweep_sees_what_it_did() {
    let off = StallOptions::new().recover_running(false);
    let (test, worker, _dead, _held) = held_by_the_dead(off, &["left"]).await;
    let inspector = worker.app.inspector();
    test.becomes_candidate("left").await;
    // The worker has watched for longer: it sweeps while the person watches, unless it was delayed.
    let report = inspector.recover_running(TASK, SilentSelection::ids(["left"])).await.unwrap();
    let why: Vec<RefusalReason> = report.refusals.iter().map(|refused| refused.why).collect();
    assert!(report.done == 1 || why == [RefusalReason::Parked], "{report:?}");
    if report.done == 0 {
        let again = inspector.recover_running(TASK, SilentSelection::ids(["left"])).await.unwrap();
        assert_eq!((again.done, again.refused), (1, 0), "{again:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_is_heard_again_continues_and_needs_no_decision() {
    let off = StallOptions::new().recover_running(false);
    let (test, worker, mut stood_still, held) = held_by_the_dead(off, &["a"]).await;
    let inspector = worker.app.inspector();
    until_parked(&inspector, 1).await;
    let mark = test.run::<String>("HGET", "parked", &["a"]).await;
    assert_eq!(stood_still.beat(&held).await, [0; 0], "it still has its job");
    assert!(parked_jobs(&inspector).await.is_empty());
    assert_eq!(test.dump("parked").await, None);
    // A failover lost the heartbeat: restored data takes nothing from a live worker.
    test.run::<u64>("HSET", "parked", &["a", &mark]).await;
    let beats = tokio::spawn(async move {
        loop {
            stood_still.beat(&held).await;
            tokio::time::sleep(INTERVAL / 3).await;
        }
    });
    let report = inspector.recover_running(TASK, SilentSelection::ids(["a"])).await.unwrap();
    assert_eq!((report.done, report.refusals[0].why), (0, RefusalReason::NotSilent), "{report:?}");
    beats.abort();
    worker.stop().await;
}

#[tokio::test]
async fn the_options_of_the_newest_start_decide_who_recovers() {
    let off = StallOptions::new().recover_running(false);
    let (test, worker, ..) = held_by_the_dead(off.clone(), &["a"]).await;
    until_parked(&worker.app.inspector(), 1).await;
    let newer = test.start_worker(fast()).await;
    worker.jobs.handle("a").unwrap().result().await.unwrap();
    assert_eq!(test.run::<String>("HGET", "meta", &["grace"]).await, "");
    let newest = test.start_worker(fast_with(off)).await;
    assert_eq!(test.run::<String>("HGET", "meta", &["grace"]).await, "0 off 0");
    for worker in [worker, newer, newest] {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_job_that_begins_during_a_manual_requeue_is_left_alone() {
    let test = TestTask::new();
    let worker = test.start_worker(fast_with(StallOptions::new().recover_running(false))).await;
    let app = worker.app.clone();
    worker.stop().await;
    let (_app, task) = test.producer().await;
    task.dispatch("x".into()).id("begins").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    let held = dead.claim_all(&["begins"]).await;
    test.run::<u64>("HSET", "claimed", &["begins", &held[0].fence.to_string()]).await;
    let inspector = app.inspector();
    let (epoch, named) = (test.epoch().await, SilentSelection::ids(["begins"]));
    let act = tokio::spawn(async move { inspector.requeue_claimed(TASK, named).await });
    // The first watch ends in a snapshot, the second one in a decision.
    eventually("it watches", PATIENCE, async || test.epoch().await > epoch).await;
    test.run::<u64>("HDEL", "claimed", &["begins"]).await;
    let report = act.await.unwrap().unwrap();
    assert_eq!((report.done, report.refusals[0].why), (0, RefusalReason::State(JobState::Running)), "{report:?}");
    assert_eq!(test.places("begins").await, ["running"]);
}

#[tokio::test]
async fn a_sweep_by_a_person_reports_jobs_that_wait_for_a_decision() {
    let test = TestTask::new();
    let worker = test.start_worker(fast_with(StallOptions::new().recover_running(false))).await;
    let app = worker.app.clone();
    worker.stop().await;
    let (_app, task) = test.producer().await;
    task.dispatch("x".into()).id("a").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["a"]).await;
    let inspector = app.inspector();
    let swept = inspector.sweep_now(TASK).await.unwrap();
    assert_eq!((swept.parked, swept.resolved.len(), swept.swept_by_worker), (1, 0, false), "{swept:?}");
    let all = inspector.requeue_claimed(TASK, SilentSelection::all()).await.unwrap();
    assert_eq!((all.done, all.refused), (0, 0), "{all:?}");
    assert_eq!(inspector.recover_running(TASK, SilentSelection::all()).await.unwrap().done, 1);
}
