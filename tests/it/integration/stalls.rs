//! What happens to the jobs of dead workers: the resolve table, the bound of stalls, concurrent and dying sweepers.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{App, Error, StallAction, StallOptions, StallReason, StalledEvent, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

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
    let (test, app) = shared().await;
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
    let (test, app) = shared().await;
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
async fn the_next_sweeper_completes_a_sweep_that_died_midway() {
    let (test, app) = shared().await;
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
    let (test, app) = shared().await;
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
