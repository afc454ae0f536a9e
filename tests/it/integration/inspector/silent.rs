//! Held jobs that are silent, and what a person decides about them.

use std::collections::BTreeSet;
use std::time::Instant;

use heartline::{
    App, Error, Inspector, JobState, JobValues, RefusalReason, SilentSelection, StallAction, StallOptions, StallReason,
};

use super::{inspector, is_sound, observed};
use crate::support::puppet::{Puppet, Token};
use crate::support::task::{INTERVAL, TASK, TestTask, fast, fast_with};
use crate::support::{PATIENCE, Proxy, eventually};

/// Jobs that a puppet holds, with an interval of one second: the worker that declared the task is gone.
async fn held_by_the_dead(test: &TestTask, app: &App, ids: &[&str]) -> (Puppet, Vec<Token>) {
    let worker = test.start_worker(fast()).await;
    worker.stop().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    for id in ids {
        task.dispatch("gate".into()).id(*id).await.unwrap();
    }
    let mut dead = Puppet::of(test).await;
    let held = dead.claim_all(ids).await;
    (dead, held)
}

/// Takes the snapshot after which they are silent.
async fn snapshot(test: &TestTask, puppet: &mut Puppet) {
    assert!(puppet.sweep(test.epoch().await, "0", 200).await.unwrap().snapshot);
}

async fn silent(inspector: &Inspector) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = inspector.silent_jobs(TASK, cursor.as_deref()).await.unwrap();
        found.extend(page.jobs.iter().map(|job| job.id.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn silent_jobs_are_those_without_a_sign_since_the_snapshot() {
    let (test, app, inspector) = observed().await;
    let (mut dead, held) = held_by_the_dead(&test, &app, &["a", "b", "c"]).await;
    assert_eq!(silent(&inspector).await, set(&[]), "they were just claimed");
    snapshot(&test, &mut dead).await;
    assert_eq!(silent(&inspector).await, set(&["a", "b", "c"]));
    dead.beat(&held[..1]).await;
    let page = inspector.silent_jobs(TASK, None).await.unwrap();
    assert_eq!(silent(&inspector).await, set(&["b", "c"]));
    let job = page.jobs.iter().find(|job| job.id.as_str() == "b").unwrap();
    assert_eq!((job.worker.as_ref().unwrap().as_str(), job.fence), (&*dead.name, Some(held[1].fence)));
    assert!(job.silent_since > job.started_at && job.started_at.is_some(), "{job:?}");
    assert!(inspector.job(TASK, "b", JobValues::None).await.unwrap().unwrap().is_silent);
    assert!(!inspector.job(TASK, "a", JobValues::None).await.unwrap().unwrap().is_silent);
}

#[tokio::test]
async fn a_person_recovers_silent_jobs_even_past_their_max_count() {
    let (test, app, inspector) = observed().await;
    let (mut dead, held) = held_by_the_dead(&test, &app, &["beats", "silent", "other"]).await;
    test.run::<u64>("HSET", "stalledCount", &["silent", "7"]).await;
    snapshot(&test, &mut dead).await;
    app.task_ref::<String, u64>(TASK).unwrap().dispatch("gate".into()).id("waits").await.unwrap();
    let ada = inspector.clone().by("ada");
    let begun = Instant::now();
    let recovering = tokio::spawn(async move {
        let wanted = SilentSelection::ids(["beats", "silent", "waits", "never", "no id", "silent"]);
        ada.recover_running(TASK, wanted).await.unwrap()
    });
    // The job with a heartbeat during the watch stays held.
    eventually("it watches", PATIENCE, async || begun.elapsed() > INTERVAL / 2).await;
    assert_eq!(dead.beat(&held[..1]).await, [0; 0]);
    let report = recovering.await.unwrap();
    assert!(begun.elapsed() >= INTERVAL, "{:?}", begun.elapsed());
    assert_eq!((report.done, report.refused, report.is_complete), (1, 4, true), "{report:?}");
    let why = |id: &str| report.refusals.iter().find(|refused| refused.id == id).unwrap().why;
    assert_eq!(why("waits"), RefusalReason::State(JobState::Waiting));
    assert_eq!(
        (why("beats"), why("never"), why("no id")),
        (RefusalReason::NotSilent, RefusalReason::Unknown, RefusalReason::InvalidId)
    );
    assert_eq!(test.places("silent").await, ["wait"]);
    assert_eq!(test.places("beats").await, ["running"]);
    assert_eq!(test.places("other").await, ["running"], "it was not named");
    assert_eq!(dead.beat(&held[..1]).await, [0; 0]);
    let stall = inspector.stall_history(TASK, "silent").await.unwrap().remove(0);
    assert_eq!(
        (stall.stall.action, stall.stall.reason, stall.stall.stalled_count),
        (StallAction::Recovered, StallReason::Manual, 8)
    );
    assert_eq!(stall.by.as_deref(), Some("ada"));
    assert!(stall.watched.unwrap() >= INTERVAL && stall.to_string().ends_with("recovered by ada"), "{stall}");
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_person_requeues_prefetched_jobs_but_no_running_ones() {
    let (test, app, inspector) = observed().await;
    let (mut dead, held) = held_by_the_dead(&test, &app, &["begun", "ahead", "other"]).await;
    for token in &held[1..] {
        test.run::<u64>("HSET", "claimed", &[&token.id, &token.fence.to_string()]).await;
    }
    snapshot(&test, &mut dead).await;
    let page = inspector.silent_jobs(TASK, None).await.unwrap();
    let claimed: BTreeSet<&str> = page.jobs.iter().filter(|job| job.is_claimed).map(|job| job.id.as_str()).collect();
    assert_eq!(claimed, BTreeSet::from(["ahead", "other"]));
    let named = SilentSelection::ids(["begun", "other", "nobody", "{"]);
    let report = inspector.requeue_claimed(TASK, named).await.unwrap();
    let mut why: Vec<_> = report.refusals.iter().map(|refused| (refused.id.as_str(), refused.why)).collect();
    why.sort_unstable_by_key(|(id, _)| *id);
    let refused = [
        ("begun", RefusalReason::State(JobState::Running)),
        ("nobody", RefusalReason::Unknown),
        ("{", RefusalReason::InvalidId),
    ];
    assert_eq!((report.done, report.is_complete, &why[..]), (1, true, &refused[..]), "{report:?}");
    let report = inspector.requeue_claimed(TASK, SilentSelection::all()).await.unwrap();
    assert_eq!((report.done, report.refused), (1, 0), "{report:?}");
    assert_eq!(test.run::<Vec<String>>("LRANGE", "wait", &["0", "-1"]).await, ["ahead", "other"]);
    assert_eq!((test.dump("stalledCount").await, test.places("begun").await), (None, vec!["running".to_owned()]));
    assert_eq!(inspector.requeue_claimed(TASK, SilentSelection::all()).await.unwrap().done, 0);
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_person_fails_silent_jobs() {
    let (test, app, inspector) = observed().await;
    let (mut dead, _) = held_by_the_dead(&test, &app, &["a", "b", "unwanted"]).await;
    let cancel = inspector.cancel(TASK, "unwanted", "not wanted").await.unwrap();
    assert_eq!((cancel.done, cancel.requested), (0, 1));
    snapshot(&test, &mut dead).await;
    let report = inspector.clone().by("ada").fail_running(TASK, SilentSelection::ids(["a", "unwanted"])).await.unwrap();
    assert_eq!((report.done, report.cancelled_instead, report.refused), (2, 1, 0));
    assert_eq!(test.places("unwanted").await, ["cancelled"]);
    assert_eq!(
        (test.places("a").await, test.places("b").await),
        (vec!["failed".to_owned()], vec!["running".to_owned()])
    );
    let job = inspector.job(TASK, "a", JobValues::None).await.unwrap().unwrap();
    let failure = job.error.unwrap();
    assert_eq!((failure.code.as_str(), job.stalled_count), ("worker_crashed", 1));
    assert!(failure.message.contains("ada let the job fail"), "{failure}");
    assert!(matches!(inspector.result_json(TASK, "a").await, Err(Error::JobFailed(_))));
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_sweep_by_a_person_takes_a_snapshot_and_then_resolves() {
    let (test, app, inspector) = observed().await;
    let (mut dead, held) = held_by_the_dead(&test, &app, &["again", "last", "beats"]).await;
    test.run::<u64>("HSET", "maxCount", &["last", "0"]).await;
    assert_eq!(silent(&inspector).await, set(&[]));
    let beats = async {
        eventually("the snapshot is taken", PATIENCE, async || silent(&inspector).await.len() == 3).await;
        dead.beat(&held[2..]).await;
    };
    let (swept, ()) = tokio::join!(inspector.sweep_now(TASK), beats);
    let mut second = swept.unwrap();
    assert!(!second.swept_by_worker);
    second.resolved.sort_by_key(|job| job.id.to_string());
    let told: Vec<_> = second.resolved.iter().map(|job| (job.id.as_str(), job.action, job.stalled_count)).collect();
    assert_eq!(told, [("again", StallAction::Recovered, 1), ("last", StallAction::Failed, 1)]);
    assert!(second.resolved.iter().all(|job| job.worker.as_ref().unwrap().as_str() == dead.name));
    assert_eq!(test.places("beats").await, ["running"]);
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_sweep_next_to_a_live_worker_reports_that_the_worker_swept() {
    let (test, app, inspector) = observed().await;
    let worker = test.start_worker(fast_with(StallOptions::new().max_count(0)).concurrency(3)).await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let jobs = task.dispatch_many(vec!["gate".to_owned(); 3]).await.unwrap();
    test.started(&jobs).await;
    test.epochs_pass(1).await;
    // The worker began to watch earlier; the Inspector can be first only if the worker was delayed.
    eventually("it reports that the worker swept", PATIENCE, async || {
        let swept = inspector.sweep_now(TASK).await.unwrap();
        assert_eq!(swept.resolved, []);
        swept.swept_by_worker
    })
    .await;
    // All slots are taken, so this job waits before and after.
    let _ = task.dispatch("open".to_owned()).id("waits").await.unwrap();
    let named = jobs.iter().map(|job| job.id().to_string()).chain(["waits".to_owned()]);
    let report = inspector.fail_running(TASK, SilentSelection::ids(named)).await.unwrap();
    assert_eq!((report.done, report.refused), (0, 4), "{report:?}");
    let is_told = |refused: &heartline::RefusedJob| match refused.id.as_str() {
        "waits" => refused.why == RefusalReason::State(JobState::Waiting),
        _ => matches!(refused.why, RefusalReason::Changed | RefusalReason::NotSilent),
    };
    assert!(report.refusals.iter().all(is_told), "{report:?}");
    assert_eq!(inspector.recover_running(TASK, SilentSelection::all()).await.unwrap().done, 0);
    assert_eq!(inspector.remove(TASK, "waits").await.unwrap().done, 1);
    test.journal.open("gate");
    test.each_ran_once(&jobs).await;
    worker.stop().await;
}

#[tokio::test]
async fn an_interrupted_watch_restarts_and_lasts_a_whole_interval() {
    let test = TestTask::plain();
    let (app, _) = inspector(&test).await;
    let (mut dead, _) = held_by_the_dead(&test, &app, &["job"]).await;
    snapshot(&test, &mut dead).await;
    let line = Proxy::start(test.redis().address()).await;
    let away = test.app_at(&line.url()).await.inspector();
    let watching = tokio::spawn(async move { away.recover_running(TASK, SilentSelection::all()).await });
    let begun = Instant::now();
    eventually("it has watched for most of an interval", PATIENCE, async || begun.elapsed() > INTERVAL * 7 / 10).await;
    line.drop_connections();
    let broken = Instant::now();
    let report = watching.await.unwrap().unwrap();
    assert_eq!(report.done, 1);
    assert!(broken.elapsed() >= INTERVAL, "{:?}", broken.elapsed());
}

#[tokio::test]
async fn a_task_without_workers_so_far_has_nothing_to_sweep() {
    let (_test, app, inspector) = observed().await;
    app.task_ref::<u32, ()>(TASK).unwrap().dispatch(0).await.unwrap();
    let swept = inspector.sweep_now(TASK).await.unwrap();
    assert_eq!((swept.resolved, swept.swept_by_worker), (vec![], false));
    let report = inspector.recover_running(TASK, SilentSelection::ids(["a"])).await.unwrap();
    assert_eq!((report.done, report.refusals[0].why), (0, RefusalReason::Unknown));
}

/// More jobs than one step of a scan visits.
#[tokio::test]
async fn thousands_of_silent_jobs_are_paged_and_recovered_at_once() {
    let (test, app, inspector) = observed().await;
    let worker = test.start_worker(fast()).await;
    worker.stop().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let jobs = task.dispatch_many((0..4000).map(|_| "open".to_owned())).await.unwrap();
    let (mut dead, mut held) = (Puppet::of(&test).await, 0);
    while held < 4000 {
        held += dead.claim(200).await.len();
    }
    snapshot(&test, &mut dead).await;
    assert!(inspector.silent_jobs(TASK, None).await.unwrap().next.is_some());
    assert_eq!(silent(&inspector).await, jobs.iter().map(|job| job.id().to_string()).collect());
    let report = inspector.recover_running(TASK, SilentSelection::all()).await.unwrap();
    assert_eq!((report.done, report.refused, report.is_complete), (4000, 0, true));
    assert_eq!(inspector.task(TASK).await.unwrap().counts.waiting, 4000);
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_person_without_a_right_gets_an_error_and_changes_nothing() {
    let test = TestTask::plain();
    let (app, _) = inspector(&test).await;
    let (mut dead, _) = held_by_the_dead(&test, &app, &["a"]).await;
    snapshot(&test, &mut dead).await;
    let mut conn = test.conn().await;
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut conn).await.unwrap();
    if info.get::<String>("redis_version").unwrap().starts_with("6.") {
        // This server cannot list the rights of a user.
        return;
    }
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("no-lpush").arg("on").arg(">secret").arg("~*").arg("&*").arg("+@all").arg("-lpush");
    let () = user.query_async(&mut conn).await.unwrap();
    let url = test.redis().url().replace("redis://", "redis://no-lpush:secret@");
    let before = test.dump("locks").await;
    let inspector = test.app_at(&url).await.inspector();
    let told = inspector.recover_running(TASK, SilentSelection::all()).await;
    assert!(matches!(&told, Err(Error::Unsupported { what }) if what.contains("LPUSH")), "{told:?}");
    assert_eq!(test.dump("locks").await, before);
}
