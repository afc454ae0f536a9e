//! What happens to the jobs of dead workers: the resolve table, the bound of stalls, concurrent and dying sweepers.

use crate::support::events::next;
use crate::support::puppet::{Puppet, Token};
use crate::support::task::{TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{App, Error, JobState, StallAction, StallOptions, StallReason, StalledEvent, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A sweeper whose handler records which jobs it ran.
fn recorder(app: &App, stall: StallOptions) -> (TaskRef<u32, ()>, Arc<Mutex<Vec<String>>>) {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = ran.clone();
    let task = app.task(TASK, fast_with(stall), move |ctx, _: u32| {
        log.lock().unwrap().push(ctx.id().to_string());
        async { Ok::<_, heartline::JobError>(()) }
    });
    (task.unwrap(), ran)
}

/// A worker whose only slot is taken: it sweeps and claims nothing.
async fn sweeper(test: &TestTask, stall: StallOptions) -> (App, TaskRef<u32, ()>, TestWorker) {
    let app = test.app().await;
    let task = app.task(TASK, fast_with(stall).concurrency(1), |ctx, _: u32| async move {
        ctx.cancelled().await;
        Ok::<_, heartline::JobError>(())
    });
    let task = task.unwrap();
    task.dispatch(0).id("blocker").await.unwrap();
    let worker = TestWorker::start(app.worker());
    test.arrives("blocker", "running").await;
    (app, task, worker)
}

async fn dispatch_all(task: &TaskRef<u32, ()>, ids: &[&str]) {
    for (input, id) in (0..).zip(ids) {
        task.dispatch(input).id(*id).await.unwrap();
    }
}

/// The next stalls, this many, by job.
async fn stalled(events: &mut heartline::Subscription<StalledEvent>, count: usize) -> BTreeMap<String, StalledEvent> {
    let mut found = BTreeMap::new();
    while found.len() < count {
        let event = next(events).await;
        let again = found.insert(event.id.to_string(), event);
        assert_eq!(again, None, "a job stalled twice");
    }
    found
}

#[tokio::test]
async fn each_row_of_the_resolve_table_applies_to_its_job() {
    let test = TestTask::new();
    let app = test.app().await;
    let (task, ran) = recorder(&app, StallOptions::new().max_count(1));
    let ids = ["gone", "unlocked", "ended", "no-number", "cancelled", "last", "again"];
    for id in ids {
        let job = task.dispatch(1).id(id);
        if id == "last" {
            job.max_stalls(0).await.unwrap()
        } else {
            job.await.unwrap()
        };
    }
    let mut dead = Puppet::of(&test).await;
    let held = dead.claim_all(&ids).await;
    test.run::<u64>("HDEL", "payload", &["gone"]).await;
    test.run::<u64>("HDEL", "locks", &["unlocked"]).await;
    dead.settle(&held[2..3], &[], 0).await;
    test.run::<u64>("SADD", "active", &["ended"]).await;
    test.run::<u64>("HSET", "stalledCount", &["no-number", "many"]).await;
    task.handle("cancelled").unwrap().cancel("enough").await.unwrap();

    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    let found = stalled(&mut stalls, 6).await;
    let short = |id: &str| {
        let event = &found[id];
        assert_eq!((event.task.as_str(), event.reason), (TASK, StallReason::Silent));
        (event.action, event.stalled_count, event.worker.as_ref().map(|worker| worker.as_str()))
    };
    let holder = Some(dead.name.as_str());
    assert_eq!(short("gone"), (StallAction::Dropped, 0, holder));
    assert_eq!(short("unlocked"), (StallAction::Failed, 0, None));
    assert_eq!(short("no-number"), (StallAction::Failed, 0, holder));
    assert_eq!(short("cancelled"), (StallAction::Cancelled, 1, holder));
    assert_eq!(short("last"), (StallAction::Failed, 1, holder));
    assert_eq!(short("again"), (StallAction::Recovered, 1, holder));

    task.handle("again").unwrap().result().await.unwrap();
    for (id, place) in [
        ("unlocked", "failed"),
        ("ended", "completed"),
        ("no-number", "failed"),
        ("cancelled", "cancelled"),
        ("last", "failed"),
        ("again", "completed"),
    ] {
        assert_eq!(test.places(id).await, [place], "{id}");
    }
    for (id, code) in [("unlocked", "corrupt"), ("no-number", "corrupt"), ("last", "worker_crashed")] {
        let Err(Error::JobFailed(failure)) = task.handle(id).unwrap().result().await else { panic!("{id}") };
        assert_eq!(failure.code, code, "{id}");
    }
    let cancelled = task.handle("cancelled").unwrap().result().await.unwrap_err();
    assert!(matches!(cancelled, Error::JobCancelled { reason, .. } if reason == "enough"));
    assert_eq!(*ran.lock().unwrap(), ["again"]);
    for (id, count) in [("cancelled", "1"), ("last", "1"), ("again", "1")] {
        assert_eq!(test.column("stalledCount", id).await.as_deref(), Some(count), "{id}");
    }
    // Only the record of its removal is left of the job without a payload.
    worker.stop().await;
    for (key, content) in test.redis().dump(&test.key("")).await {
        let record = ["events", "stalls", "replies"].iter().any(|name| key.ends_with(name));
        assert!(record || !content.contains("gone"), "{key}: {content}");
    }
    assert_eq!(test.run::<u64>("EXISTS", "cancelling", &[]).await, 0);
}

#[tokio::test]
async fn max_count_n_fails_a_job_at_stall_n_plus_one() {
    let test = TestTask::new();
    let (app, task, worker) = sweeper(&test, StallOptions::new()).await;
    let mut stalls = app.on_stalled();
    let ids = ["zero", "one", "two", "three"];
    for (max_count, id) in (0..).zip(ids) {
        task.dispatch(0).id(id).max_stalls(max_count).await.unwrap();
    }
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&ids).await;
    for stall in 1..=4_u32 {
        let left = &ids[stall as usize - 1..];
        let found = stalled(&mut stalls, left.len()).await;
        for (position, id) in left.iter().enumerate() {
            let action = if position == 0 { StallAction::Failed } else { StallAction::Recovered };
            assert_eq!((found[*id].action, found[*id].stalled_count), (action, stall), "{id}");
            assert_eq!(test.column("stalledCount", id).await, Some(stall.to_string()), "{id}");
        }
        test.arrives(left[0], "failed").await;
        let mut again = dead.claim(ids.len()).await;
        again.sort_by_key(|token| ids.iter().position(|id| *id == token.id));
        assert_eq!(again.iter().map(|token| token.id.as_str()).collect::<Vec<_>>(), left[1..]);
    }
    for (max_count, id) in (0..).zip(ids) {
        let job = task.job(id).await.unwrap();
        assert_eq!((job.state, job.failed_attempts, job.stalled_count), (JobState::Failed, 0, max_count + 1), "{id}");
        let failure = job.error.unwrap();
        assert_eq!((failure.code.as_str(), failure.stalled_count), ("worker_crashed", max_count + 1), "{id}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn the_max_count_of_the_task_is_the_default_of_its_jobs() {
    let test = TestTask::new();
    let (app, task, worker) = sweeper(&test, StallOptions::new().max_count(0)).await;
    let mut stalls = app.on_stalled();
    dispatch_all(&task, &["plain"]).await;
    Puppet::of(&test).await.claim_all(&["plain"]).await;
    assert_eq!(next(&mut stalls).await.action, StallAction::Failed);
    test.arrives("plain", "failed").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_ends_before_the_resolve_does_not_run_again() {
    let test = TestTask::new();
    let (_app, task, worker) = sweeper(&test, StallOptions::new()).await;
    let ids = ["completes", "fails", "retries", "requeues", "cancels"];
    dispatch_all(&task, &ids).await;
    let mut slow = Puppet::of(&test).await;
    let held = slow.claim_all(&ids).await;
    task.handle("cancels").unwrap().cancel("").await.unwrap();
    test.becomes_candidate("completes").await;
    let error = r#"{"code":"x","message":""}"#;
    let said = [
        (&held[1], "failed", 1, "x", error),
        (&held[2], "retry", 1, "60000", error),
        (&held[3], "requeue", 0, "", ""),
        (&held[4], "failed", 1, "x", error),
    ];
    let settled = slow.settle(&held[..1], &said, 0).await;
    assert_eq!((settled.lost, settled.cancelled), (vec![], vec![held[4].fence]));
    let candidates: Vec<String> = test.run("SMEMBERS", "candidates", &[]).await;
    assert!(candidates.iter().all(|id| id == "blocker"), "{candidates:?}");
    test.epochs_pass(2).await;
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0);
    for (id, place) in ids.into_iter().zip(["completed", "failed", "delayed", "wait", "cancelled"]) {
        assert_eq!(test.places(id).await, [place], "{id}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_candidate_that_sends_heartbeats_stays_with_its_worker() {
    let test = TestTask::new();
    let (_app, task, worker) = sweeper(&test, StallOptions::new().max_count(0)).await;
    dispatch_all(&task, &["slow"]).await;
    let mut slow = Puppet::of(&test).await;
    let held = slow.claim_all(&["slow"]).await;
    for _ in 0..3 {
        test.becomes_candidate("slow").await;
        assert_eq!(slow.beat(&held).await, [0; 0]);
    }
    slow.settle(&held, &[], 0).await;
    test.arrives("slow", "completed").await;
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_heartbeat_just_before_the_resolve_call_keeps_the_job() {
    let test = TestTask::new();
    let task = test.app().await.task_ref::<u32, ()>(TASK).unwrap();
    dispatch_all(&task, &["beaten", "silent"]).await;
    let (mut slow, mut sweep) = (Puppet::of(&test).await, Puppet::of(&test).await);
    let held = slow.claim_all(&["beaten", "silent"]).await;
    let first = sweep.sweep(0, "0", 200).await.unwrap();
    assert!(first.snapshot && first.epoch == 1 && first.ids.is_empty(), "{first:?}");
    slow.beat(&held[..1]).await;
    assert_eq!(sweep.sweep(1, "0", 200).await.unwrap().ids, ["silent"]);
    test.arrives("beaten", "running").await;
    test.arrives("silent", "wait").await;
}

/// Jobs that a dead worker holds.
async fn abandoned(test: &TestTask, task: &TaskRef<u32, ()>, count: usize) -> BTreeSet<String> {
    let handles = task.dispatch_many(0..count as u32).await.unwrap();
    let mut dead = Puppet::of(test).await;
    for _ in 0..count.div_ceil(200) {
        dead.claim(200).await;
    }
    let ids: BTreeSet<String> = handles.iter().map(|handle| handle.id().to_string()).collect();
    assert_eq!((ids.len(), task.counts().await.unwrap().running), (count, count as u64));
    ids
}

#[tokio::test]
async fn two_concurrent_sweepers_resolve_each_job_once() {
    let test = TestTask::new();
    let app = test.app().await;
    let (task, ran) = recorder(&app, StallOptions::new());
    let ids = abandoned(&test, &task, 1000).await;
    let other = test.app().await;
    let (_, ran_there) = recorder(&other, StallOptions::new());
    let workers = [TestWorker::start(app.worker()), TestWorker::start(other.worker())];
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 1000).await;
    let resolved: Vec<String> = test.stalls().await.into_iter().flatten().map(|(id, _)| id).collect();
    assert_eq!((resolved.len(), resolved.into_iter().collect::<BTreeSet<_>>()), (1000, ids.clone()));
    let ran: Vec<String> = [ran, ran_there].iter().flat_map(|ran| ran.lock().unwrap().clone()).collect();
    assert_eq!((ran.len(), ran.into_iter().collect::<BTreeSet<_>>()), (1000, ids));
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn interleaved_sweeps_resolve_each_job_once() {
    let test = TestTask::new();
    let task = test.app().await.task_ref::<u32, ()>(TASK).unwrap();
    let ids = abandoned(&test, &task, 1000).await;
    let mut sweepers = [Puppet::of(&test).await, Puppet::of(&test).await];
    sweepers[0].sweep(0, "0", 200).await.unwrap();
    let mut cursors = ["0".to_owned(), "0".to_owned()];
    let (mut resolved, mut moved) = (Vec::new(), 0);
    while moved < 2 {
        moved = 0;
        for (sweeper, cursor) in sweepers.iter_mut().zip(&mut cursors) {
            match sweeper.sweep(1, cursor, 100).await {
                Some(swept) => {
                    assert!(swept.ids.len() <= 100);
                    resolved.extend(swept.ids);
                    *cursor = swept.cursor;
                }
                None => moved += 1,
            }
        }
    }
    assert_eq!((resolved.len(), resolved.into_iter().collect::<BTreeSet<_>>()), (1000, ids));
    assert_eq!((test.epoch().await, task.counts().await.unwrap().waiting), (2, 1000));
}

#[tokio::test]
async fn the_next_sweeper_completes_a_sweep_that_died_midway() {
    let test = TestTask::new();
    let app = test.app().await;
    let (task, ran) = recorder(&app, StallOptions::new());
    let ids = abandoned(&test, &task, 1000).await;
    let mut dying = Puppet::of(&test).await;
    dying.sweep(0, "0", 200).await.unwrap();
    let first = dying.sweep(1, "0", 200).await.unwrap();
    assert!((1..=200).contains(&first.ids.len()) && !first.snapshot, "{first:?}");
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (first.ids.len() as u64, 1000 - first.ids.len() as u64));

    let worker = TestWorker::start(app.worker());
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 1000).await;
    let mut ran = ran.lock().unwrap().clone();
    ran.sort();
    assert_eq!(ran, ids.into_iter().collect::<Vec<_>>());
    assert_eq!(test.stalls().await.into_iter().flatten().count(), 1000);
    worker.stop().await;
}

#[tokio::test]
async fn fifty_thousand_jobs_are_swept_two_hundred_a_call() {
    const JOBS: usize = 50_000;
    let test = TestTask::new();
    let task = test.app().await.task_ref::<u32, ()>(TASK).unwrap();
    task.dispatch_many(0..JOBS as u32).await.unwrap();
    let mut holder = Puppet::of(&test).await;
    let mut held: Vec<Token> = Vec::with_capacity(JOBS);
    while held.len() < JOBS {
        held.extend(holder.claim(200).await);
    }
    let (living, dead) = held.split_at(JOBS / 2);
    let mut witness = Puppet::of(&test).await;
    assert!(witness.sweep(0, "0", 200).await.unwrap().snapshot);
    // Only one half sends heartbeats after the snapshot.
    for part in living.chunks(500) {
        assert_eq!(holder.beat(part).await, [0; 0]);
    }
    let (mut cursor, mut calls) = ("0".to_owned(), 0);
    let last = loop {
        let swept = witness.sweep(1, &cursor, 200).await.unwrap();
        calls += 1;
        if swept.snapshot {
            break swept;
        }
        assert!(swept.ids.len() <= 200, "a call resolved {} jobs", swept.ids.len());
        cursor = swept.cursor;
    };
    assert_eq!((last.epoch, calls > JOBS / 2 / 200), (2, true), "{calls} calls");
    let entries = test.stalls().await;
    let largest = entries.iter().map(Vec::len).max();
    assert!(largest <= Some(200), "a call resolved {largest:?} jobs");
    let resolved: Vec<String> = entries.into_iter().flatten().map(|(id, _)| id).collect();
    let dead: BTreeSet<String> = dead.iter().map(|token| token.id.clone()).collect();
    assert_eq!((resolved.len(), resolved.into_iter().collect::<BTreeSet<_>>()), (JOBS / 2, dead));
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (JOBS as u64 / 2, JOBS as u64 / 2));
}

#[tokio::test]
async fn recovered_jobs_run_first_and_in_their_old_order() {
    let test = TestTask::new();
    let app = test.app().await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = ran.clone();
    let task = app.task(TASK, fast().concurrency(1), move |ctx, _: u32| {
        log.lock().unwrap().push(format!("{} {}", ctx.id(), ctx.stalled_count()));
        async { Ok::<_, heartline::JobError>(()) }
    });
    let task = task.unwrap();
    task.dispatch(0).id("stalled-low").priority(heartline::Priority::Low).await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["stalled-low"]).await;
    dispatch_all(&task, &["stalled"]).await;
    dead.claim_all(&["stalled"]).await;
    dead.sweep(0, "0", 200).await.unwrap();
    dead.sweep(1, "0", 200).await.unwrap();
    dispatch_all(&task, &["waiting"]).await;
    let low = task.dispatch(0).id("waiting-low").priority(heartline::Priority::Low).await.unwrap();
    let worker = TestWorker::start(app.worker());
    low.result().await.unwrap();
    assert_eq!(*ran.lock().unwrap(), ["stalled 1", "waiting 0", "stalled-low 1", "waiting-low 0"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_lost_a_job_writes_nothing_for_it() {
    let test = TestTask::new();
    let task = test.app().await.task_ref::<u32, ()>(TASK).unwrap();
    let ids = ["a", "b", "c", "d"];
    dispatch_all(&task, &ids).await;
    let (mut late, mut sweep, mut second) = (Puppet::of(&test).await, Puppet::of(&test).await, Puppet::of(&test).await);
    let mut held = late.claim_all(&ids).await;
    sweep.sweep(0, "0", 200).await.unwrap();
    assert_eq!(sweep.sweep(1, "0", 200).await.unwrap().ids.len(), 4);
    let again = second.claim(4).await;
    assert_eq!(again.len(), 4);
    held.sort_by_key(|token| token.fence);
    assert!(again.iter().all(|token| token.fence > held[3].fence), "fences grow from claim to claim");

    let before = test.redis().dump(&test.key("")).await;
    let error = r#"{"code":"x","message":""}"#;
    let said =
        [(&held[1], "failed", 1, "x", error), (&held[2], "retry", 1, "1", error), (&held[3], "requeue", 0, "", "")];
    let settled = late.settle(&held[..1], &said, 0).await;
    let mut fences: Vec<u64> = held.iter().map(|token| token.fence).collect();
    assert_eq!((settled.lost, settled.claimed), (fences.clone(), vec![]));
    let mut lost = late.beat(&held).await;
    lost.sort();
    fences.sort();
    assert_eq!(lost, fences);
    let mut after = test.redis().dump(&test.key("")).await;
    // The settle call is recorded with its reply, for a repeat. Its outcomes are reported as refused.
    let mut before = before;
    for told in ["replies", "events", "meta"] {
        let key = test.key(told);
        assert_ne!(after.remove(&key), before.remove(&key), "{told}");
    }
    assert_eq!(after, before);

    second.settle(&again, &[], 0).await;
    assert_eq!(task.counts().await.unwrap().completed, 4);
}

#[tokio::test]
async fn a_dead_worker_is_found_within_two_intervals() {
    let test = TestTask::new();
    let (app, task, worker) = sweeper(&test, StallOptions::new()).await;
    let mut stalls = app.on_stalled();
    for round in 0..2 {
        let id = format!("job-{round}");
        task.dispatch(0).id(&id).await.unwrap();
        Puppet::of(&test).await.claim_all(&[&id]).await;
        let claimed_in = test.epoch().await;
        assert_eq!(next(&mut stalls).await.id.as_str(), id);
        // The sweep that resolves a job begins the next epoch.
        let resolved_in = test.epoch().await;
        assert!(resolved_in <= claimed_in + 2, "claimed in epoch {claimed_in}, resolved in {resolved_in}");
        task.handle(&id).unwrap().cancel("").await.unwrap();
    }
    worker.stop().await;
}

#[tokio::test]
async fn jobs_of_live_workers_are_kept_while_thousands_stall() {
    let test = TestTask::new();
    let app = test.app().await;
    let task =
        app.task(TASK, fast_with(StallOptions::new().max_count(0)).concurrency(50), |ctx, long: bool| async move {
            if long {
                ctx.cancelled().await;
            }
            Ok::<_, heartline::JobError>(())
        });
    let task = task.unwrap();
    let worker = TestWorker::start(app.worker());
    let living = task.dispatch_many(vec![true; 50]).await.unwrap();
    eventually("they run", PATIENCE, async || task.counts().await.unwrap().running == 50).await;
    let sink = test.app().await.task_ref::<u32, ()>(TASK).unwrap();
    let dead = sink.dispatch_many(0..5000).await.unwrap();
    let mut puppet = Puppet::of(&test).await;
    while puppet.claim(200).await.len() == 200 {}
    eventually("the jobs of dead workers are resolved", PATIENCE, async || task.counts().await.unwrap().failed == 5000)
        .await;
    test.epochs_pass(1).await;
    let failed: BTreeSet<String> = test.stalls().await.into_iter().flatten().map(|(id, _)| id).collect();
    assert_eq!(failed, dead.iter().map(|handle| handle.id().to_string()).collect());
    for handle in living {
        assert_eq!(test.places(handle.id().as_str()).await, ["running"]);
    }
    worker.stop().await;
}

#[tokio::test]
async fn one_returning_worker_recovers_the_jobs_of_a_fleet() {
    let test = TestTask::new();
    let app = test.app().await;
    let (task, _) = recorder(&app, StallOptions::new().interval(Duration::from_secs(1)));
    abandoned(&test, &task, 10).await;
    let worker = TestWorker::start(app.worker());
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 10).await;
    let epoch = test.epoch().await;
    assert!(epoch <= 3, "it took {epoch} epochs");
    worker.stop().await;
}
