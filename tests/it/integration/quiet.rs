//! Workers that a person asked to claim no more jobs.

use std::time::Duration;

use heartline::_internals::Timings;
use heartline::{App, DiagnosisKind, Error, Inspector, PauseEvent, TaskEvent, TaskRef, WorkerState};

use crate::integration::fixtures::producing;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, counts, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};

/// A producer, and an Inspector that acts as ada.
async fn scene() -> (TestTask, App, TaskRef<String, u64>, Inspector) {
    let (test, app, jobs) = producing().await;
    let ada = app.inspector().by("ada");
    (test, app, jobs, ada)
}

async fn state_of(inspector: &Inspector, worker: &str) -> WorkerState {
    inspector.worker(worker).await.unwrap().unwrap().state
}

#[tokio::test]
async fn a_quiet_worker_finishes_what_runs_and_hands_back_the_rest() {
    let (test, _app, jobs, ada) = scene().await;
    let worker = test.start_worker(fast().concurrency(1).prefetch(3)).await;
    let id = worker.id.clone();
    let first = jobs.dispatch("first".into()).await.unwrap();
    counts(&jobs, 0, 1).await;
    let others = jobs.dispatch_many(["a", "b", "c", "d"].map(str::to_owned)).await.unwrap();
    counts(&jobs, 3, 1).await;
    assert_eq!(ada.quiet_worker(&id).await.unwrap(), None);
    counts(&jobs, 0, 1).await;
    assert_eq!(jobs.counts().await.unwrap().waiting, 4);
    test.journal.open("first");
    assert_eq!(first.result().await.unwrap(), test.journal.runs_of(first.id())[0].fence);
    // Markers of new jobs do not wake it. Another worker takes them.
    let other = test.start_worker(fast()).await;
    let late = jobs.dispatch("late".into()).await.unwrap();
    for gate in ["a", "b", "c", "d", "late"] {
        test.journal.open(gate);
    }
    for job in others.iter().chain([&late]) {
        job.result().await.unwrap();
        let by = test.journal.runs_of(job.id()).into_iter().map(|run| run.worker).collect::<Vec<_>>();
        assert_eq!(by, [other.id.as_str()]);
    }
    other.stop().await;
    let next = jobs.dispatch("late".into()).await.unwrap();
    assert!(ada.resume_worker(&id).await.unwrap().is_some());
    next.result().await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn a_quiet_worker_recovers_jobs_of_others_and_keeps_its_own() {
    let (test, _app, jobs, ada) = scene().await;
    let worker = test.start_worker(fast()).await;
    let own = jobs.dispatch("own".into()).await.unwrap();
    test.started(std::slice::from_ref(&own)).await;
    ada.quiet_worker(&worker.id).await.unwrap();
    eventually("it is quiet", PATIENCE, async || state_of(&ada, &worker.id).await == WorkerState::Quiet).await;
    let lost = jobs.dispatch("lost".into()).await.unwrap();
    let mut puppet = Puppet::of(&test).await;
    puppet.claim_all(&[lost.id().as_str()]).await;
    test.arrives(lost.id().as_str(), "wait").await;
    test.journal.open("own");
    assert_eq!(own.result().await.unwrap(), test.journal.runs_of(own.id())[0].fence);
    worker.stop().await;
}

#[tokio::test]
async fn tools_say_who_made_a_worker_quiet_and_since_when() {
    let (test, _app, jobs, ada) = scene().await;
    let worker = test.start_worker(fast()).await;
    let id = worker.id.clone();
    jobs.dispatch("gate".into()).await.unwrap();
    let start = ada.events(TASK, None).await.unwrap().next;
    ada.quiet_worker(&id).await.unwrap();
    let seen = ada.worker(&id).await.unwrap().unwrap();
    assert_eq!((seen.state, seen.quiet.map(|quiet| quiet.by)), (WorkerState::Quiet, Some("ada".to_owned())));
    let diagnoses = ada.diagnose().await.unwrap();
    let found = diagnoses.iter().find(|found| matches!(found.kind, DiagnosisKind::WorkerQuiet { .. })).unwrap();
    assert!(found.to_string().contains(&format!("{id} claims no jobs: ada made it quiet ")), "{found}");
    let bob = ada.clone().by("bob");
    assert_eq!(bob.quiet_worker(&id).await.unwrap().unwrap().by, "ada");
    bob.resume_worker(&id).await.unwrap();
    assert_eq!((bob.resume_worker(&id).await.unwrap(), state_of(&bob, &id).await), (None, WorkerState::Live));
    let told = ada.events(TASK, Some(&start)).await.unwrap().events;
    let told: Vec<&PauseEvent> =
        told.iter().filter_map(|event| if let TaskEvent::Pause(told) = event { Some(told) } else { None }).collect();
    let [PauseEvent::WorkerQuiet { by, worker: quiet, .. }, PauseEvent::WorkerResumed { by: resumed_by, .. }] =
        told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((by.as_str(), quiet.as_str(), resumed_by.as_str()), ("ada", id.as_str(), "bob"));
    test.journal.open("gate");
    worker.stop().await;
}

#[tokio::test]
async fn only_a_worker_that_has_not_stopped_can_be_quiet() {
    let (test, _app, _jobs, ada) = scene().await;
    assert!(matches!(ada.quiet_worker("nowhere-1-00000000").await, Err(Error::Config(_))));
    let worker = test.start_worker(fast()).await;
    let id = worker.id.clone();
    ada.quiet_worker(&id).await.unwrap();
    worker.stop().await;
    assert!(matches!(ada.resume_worker(&id).await, Err(Error::Config(_))));
    // The mark was of that process.
    let worker = test.start_worker(fast()).await;
    assert_eq!(state_of(&ada, &worker.id).await, WorkerState::Live);
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_reply_hides_neither_the_mark_nor_its_end() {
    let test = TestTask::plain();
    let worker = test.start_worker(fast()).await;
    let proxy = Proxy::start(test.redis().address()).await;
    let ada = test.app_at(&proxy.url()).await.inspector().by("ada");
    // The first call also checks the server.
    assert_eq!(state_of(&ada, &worker.id).await, WorkerState::Live);
    let start = ada.events(TASK, None).await.unwrap().next;
    let cut = proxy.cut_next_reply_to("HSET");
    assert_eq!(ada.quiet_worker(&worker.id).await.unwrap(), None);
    cut.happened().await;
    let cut = proxy.cut_next_reply_to("HDEL");
    assert!(ada.resume_worker(&worker.id).await.unwrap().is_some());
    cut.happened().await;
    assert_eq!(state_of(&ada, &worker.id).await, WorkerState::Live);
    assert_eq!(ada.events(TASK, Some(&start)).await.unwrap().events.len(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_missed_the_hint_reads_its_mark() {
    let (test, _app, jobs, ada) = scene().await;
    let timings = Timings { reconcile: Duration::from_millis(200), ..Timings::default() };
    let app = App::builder().redis(test.url()).prefix(&test.prefix).timings(timings).build().await.unwrap();
    test.declare_at(&app, fast().concurrency(1).prefetch(3));
    let worker = TestWorker::start(app.worker());
    jobs.dispatch_many(["first", "a", "a", "a"].map(str::to_owned)).await.unwrap();
    counts(&jobs, 3, 1).await;
    // Written without a hint, as if it had been lost.
    let key = format!("{}:worker:{}", test.prefix, worker.id);
    let mut conn = test.conn().await;
    let () = redis::cmd("HSET").arg(&key).arg("quiet").arg("1700000000000 ada").query_async(&mut conn).await.unwrap();
    counts(&jobs, 0, 1).await;
    // The next presence does not remove the mark.
    let seen = ada.worker(&worker.id).await.unwrap().unwrap();
    eventually("it reports its presence", PATIENCE, async || {
        ada.worker(&worker.id).await.unwrap().unwrap().last_seen_at > seen.last_seen_at
    })
    .await;
    assert!(ada.resume_worker(&worker.id).await.unwrap().is_some());
    for gate in ["first", "a"] {
        test.journal.open(gate);
    }
    eventually("all jobs run", PATIENCE, async || jobs.counts().await.unwrap().completed == 4).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_quiet_worker_is_healthy_while_jobs_wait() {
    let test = TestTask::new();
    let timings = Timings { claim_silence: Duration::from_millis(100), ..Timings::default() };
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix).timings(timings).build().await.unwrap();
    let jobs = test.declare_at(&app, fast());
    let worker = app.worker().spawn();
    let (id, monitor, ada) = (worker.id().to_string(), worker.monitor(), app.inspector().by("ada"));
    eventually("it is live", PATIENCE, async || monitor.health().ready).await;
    ada.quiet_worker(&id).await.unwrap();
    eventually("it is quiet", PATIENCE, async || state_of(&ada, &id).await == WorkerState::Quiet).await;
    let job = jobs.dispatch("late".into()).await.unwrap();
    // A worker that claims nothing for two intervals while it knows of jobs is not live. It counts them every 5 s.
    test.epochs_pass(8).await;
    assert_eq!(monitor.health().reasons, [""; 0]);
    assert!(monitor.health().live);
    ada.resume_worker(&id).await.unwrap();
    eventually("it claims", PATIENCE, async || jobs.counts().await.unwrap().running == 1).await;
    assert!(monitor.health().live);
    test.journal.open("late");
    job.result().await.unwrap();
    let _ = worker.stop().await.unwrap();
}
