//! Jobs that a worker claims ahead: they wait in it, begin in order, and are not lost when it stops or is too slow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    App, Context, Event, Heartbeat, JobError, JobFilter, JobState, JobValues, StallAction, StallOptions, StallReason,
    Subscription, TaskOptions, TaskRef,
};

use crate::integration::fixtures::{alone, producing, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, counts, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, early_begins, eventually};

pub(super) fn ids(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("job-{at:03}")).collect()
}

async fn dispatch(task: &TaskRef<String, u64>, input: &str, ids: &[String]) {
    for id in ids {
        task.dispatch(input.into()).id(id).await.unwrap();
    }
}

#[tokio::test]
async fn prefetched_jobs_wait_in_the_worker_and_begin_in_order() {
    let (test, app, task) = producing().await;
    let ids = ids(8);
    dispatch(&task, "gate", &ids).await;
    let worker = test.start_worker(fast().concurrency(1).prefetch(5)).await;
    counts(&task, 5, 1).await;
    assert_eq!(task.counts().await.unwrap().waiting, 2);
    assert_eq!(task.handle(&ids[0]).unwrap().state().await.unwrap(), JobState::Running);
    assert_eq!(task.handle(&ids[1]).unwrap().state().await.unwrap(), JobState::Claimed);
    let inspector = app.inspector();
    let page = inspector.jobs(TASK, &JobFilter::new(JobState::Claimed), None, 100).await.unwrap();
    let found: BTreeSet<&str> = page.jobs.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(found, ids[1..6].iter().map(String::as_str).collect());
    assert!(
        page.jobs
            .iter()
            .all(|row| row.state == JobState::Claimed && row.worker.as_ref().unwrap().as_str() == worker.id)
    );
    let running = inspector.jobs(TASK, &JobFilter::new(JobState::Running), None, 100).await.unwrap();
    assert_eq!(running.jobs.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), [ids[0].as_str()]);
    let job = inspector.job(TASK, &ids[1], JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.state, job.worker.unwrap().as_str()), (JobState::Claimed, worker.id.as_str()));
    assert_eq!(inspector.task(TASK).await.unwrap().counts.claimed, 5);
    // Longer than a sweep needs: the keeper sends heartbeats for them, too.
    test.epochs_pass(3).await;
    test.journal.open("gate");
    for id in &ids {
        task.handle(id).unwrap().result().await.unwrap();
    }
    let order: Vec<String> = test.journal.runs().into_iter().map(|run| run.id).collect();
    assert_eq!(order, ids);
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
    test.nothing_is_left_but(8).await;
    assert_eq!(test.run::<u64>("EXISTS", "claimed", &[]).await, 0);
}

#[tokio::test]
async fn a_stopped_or_dropped_worker_requeues_prefetched_jobs() {
    for (is_dropped, slots, ahead) in [(false, 2, 3), (true, 1, 5)] {
        let (test, _app, task) = producing().await;
        let ids = ids(6);
        dispatch(&task, "never", &ids).await;
        let worker = test.start_worker(fast().concurrency(slots).prefetch(ahead)).await;
        counts(&task, ahead as u64, slots as u64).await;
        match is_dropped {
            false => worker.stop().await,
            true => worker.abort(),
        }
        eventually("all wait", PATIENCE, async || task.counts().await.unwrap().waiting == 6).await;
        assert_eq!(test.run::<Vec<String>>("LRANGE", "wait", &["0", "-1"]).await, ids, "{is_dropped}");
        for id in &ids {
            let job = task.job(id).await.unwrap();
            assert_eq!((job.state, job.failed_attempts, job.stalled_count), (JobState::Waiting, 0, 0));
        }
        assert_eq!((test.dump("claimed").await, test.dump("stalls").await), (None, None));
        assert_eq!(test.journal.runs().len(), slots, "no other had begun");
    }
}

#[tokio::test]
async fn the_sweep_requeues_and_reports_jobs_of_a_silent_worker() {
    let (redis, test) = alone();
    let app = test.app().await;
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let told = Arc::clone(&seen);
    let task = app
        .task(&test.name, fast().concurrency(1), move |ctx: Context, _: String| {
            told.lock().unwrap().insert(ctx.id().to_string(), ctx.recovery().cloned());
            async { Ok::<u64, JobError>(1) }
        })
        .unwrap();
    let ids = ids(3);
    dispatch(&task, "never", &ids).await;
    let dead = test.start_mortal_worker(&redis, fast().concurrency(1).prefetch(2)).await;
    counts(&task, 2, 1).await;
    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    let dead_id = dead.id.clone();
    dead.dies().await;
    let mut actions = BTreeMap::new();
    for _ in &ids {
        let stall = next(&mut stalls).await;
        assert_eq!((stall.reason, stall.worker.unwrap().as_str()), (StallReason::Silent, dead_id.as_str()));
        actions.insert(stall.id.to_string(), (stall.action, stall.stalled_count));
    }
    assert_eq!(actions[&ids[0]], (StallAction::Recovered, 1));
    assert!(ids[1..].iter().all(|id| actions[id] == (StallAction::Requeued, 0)), "{actions:?}");
    for id in &ids {
        task.handle(id).unwrap().result().await.unwrap();
    }
    let seen = seen.lock().unwrap().clone();
    let of = |at: usize| seen[&ids[at]].as_ref().map(|told| (told.reason, told.stalled_count, told.requeued_count));
    assert_eq!(of(0), Some((StallReason::Silent, 1, 0)));
    assert_eq!((of(1), of(2)), (Some((StallReason::Requeued, 0, 1)), Some((StallReason::Requeued, 0, 1))));
    worker.stop().await;
}

/// An App with a large buffer for slow subscribers.
pub(super) async fn app_with_room(test: &TestTask) -> App {
    App::builder().redis(test.redis().app_url()).prefix(&test.prefix).event_capacity(100_000).build().await.unwrap()
}

/// Runs jobs that end at once. Returns all events up to the last end, and how many jobs the calls of the worker let
/// begin early.
pub(super) async fn quick(options: TaskOptions, count: usize) -> (Vec<Event>, Vec<usize>) {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let settles = test.settles(&proxy).await;
    let app = app_with_room(&test).await;
    let mut events = app.events();
    let task: TaskRef<String, u64> = app.task_ref(TASK).unwrap();
    let ids = ids(count);
    task.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), "x".to_owned()))).await.unwrap();
    let own = test.app_at(&proxy.url()).await;
    own.task(TASK, options, |_: Context, _: String| async { Ok::<u64, JobError>(1) }).unwrap();
    let worker = TestWorker::start(own.worker());
    let seen = all_of(&mut events, count).await;
    worker.stop().await;
    test.nothing_is_left_but(count).await;
    (seen, early_begins(&settles))
}

async fn all_of(events: &mut Subscription<Event>, count: usize) -> Vec<Event> {
    let (mut seen, mut ended) = (Vec::new(), 0);
    while ended < count {
        let event = next(events).await;
        ended += usize::from(event.is_terminal());
        seen.push(event);
    }
    seen
}

/// The most jobs that ran at the same time according to Redis.
pub(super) fn most_running(events: &[Event]) -> usize {
    let (mut running, mut most) = (BTreeSet::new(), 0);
    for event in events {
        match event {
            Event::Started { id, .. } => assert!(running.insert(id.clone()), "{id} began twice"),
            Event::Completed { id, .. } | Event::Claimed { id, .. } | Event::Requeued { id, .. } => {
                running.remove(id);
            }
            _ => {}
        }
        most = most.max(running.len());
    }
    most
}

#[tokio::test]
async fn short_jobs_begin_after_the_running_ones_and_run_once() {
    let (events, early) = quick(fast().concurrency(1).prefetch(50), 2_000).await;
    let most = most_running(&events);
    assert!((2..=51).contains(&most), "{most}");
    assert!(!early.is_empty());
}

#[tokio::test]
async fn no_job_begins_early_if_one_stall_would_fail_it() {
    let strict = [
        StallOptions::new().max_count(0),
        StallOptions::new().on_crash(heartline::OnCrash::Fail),
        StallOptions::new().heartbeat(Heartbeat::Manual),
    ];
    for stall in strict {
        // Long enough that a busy machine is not taken for a stall.
        let options = fast().stall(stall.interval(Duration::from_secs(5)));
        let (events, early) = quick(options.clone().concurrency(1).prefetch(50), 500).await;
        assert_eq!(most_running(&events), 1, "{options:?}");
        assert_eq!(early, [0; 0], "the script would refuse it, but the worker must not ask for it: {options:?}");
        assert!(events.iter().any(|event| matches!(event, Event::Claimed { .. })), "nothing was prefetched");
    }
}

#[tokio::test]
async fn no_job_begins_early_if_its_own_max_count_is_zero() {
    let test = TestTask::new();
    let app = app_with_room(&test).await;
    let mut events = app.events();
    let options = fast().concurrency(1).prefetch(50);
    let task = app.task(TASK, options, |_: Context, _: String| async { Ok::<u64, JobError>(1) }).unwrap();
    for (at, id) in ids(600).iter().enumerate() {
        let job = task.dispatch("x".into()).id(id);
        if at % 2 == 0 {
            job.await.unwrap()
        } else {
            job.max_stalls(0).await.unwrap()
        };
    }
    let worker = TestWorker::start(app.worker());
    let (mut running, mut alone) = (BTreeSet::new(), 0);
    for event in all_of(&mut events, 600).await {
        match event {
            Event::Started { id, .. } => {
                let odd = id.as_str()[4..].parse::<usize>().unwrap() % 2 == 1;
                assert!(!odd || running.is_empty(), "{id} began after {running:?}");
                alone += usize::from(odd);
                running.insert(id);
            }
            Event::Completed { id, .. } | Event::Claimed { id, .. } => {
                running.remove(&id);
            }
            _ => {}
        }
    }
    assert_eq!(alone, 300);
    worker.stop().await;
}

/// A long job blocks its slot, with jobs after it that have begun: they become claimed again, and may be handed back.
#[tokio::test]
async fn jobs_that_began_early_are_claimed_again_after_a_long_run() {
    let test = TestTask::new();
    let app = app_with_room(&test).await;
    let mut events = app.events();
    let (journal, ran) = (Arc::clone(&test.journal), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&ran);
    let task = app
        .task(TASK, fast().concurrency(1).prefetch(50), move |ctx: Context, input: String| {
            let (journal, ran) = (Arc::clone(&journal), Arc::clone(&counted));
            async move {
                ran.fetch_add(1, Ordering::SeqCst);
                if input == "x" { Ok::<u64, JobError>(1) } else { journal.work(ctx, input).await }
            }
        })
        .unwrap();
    // A long job may be the last that began, so there are several.
    let long = ["job-300", "job-400", "job-500", "job-600", "job-700", "job-800"];
    let input = |id: &str| if long.contains(&id) { id } else { "x" }.to_owned();
    task.dispatch_many_with_ids(ids(1_000).into_iter().map(|id| (id.clone(), input(&id)))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    let (mut begun, mut back, mut ends) = (BTreeSet::new(), 0, 1_000);
    for gate in long {
        test.started(&[task.handle(gate).unwrap()]).await;
        // Only the long job runs.
        eventually("the others are claimed", PATIENCE, async || {
            let counts = task.counts().await.unwrap();
            counts.running == 1 && counts.claimed > 0
        })
        .await;
        // The event of this job comes after the events of everything before it.
        let last = task.dispatch("x".to_owned()).await.unwrap();
        ends += 1;
        loop {
            match next(&mut events).await {
                Event::Started { id, .. } => drop(begun.insert(id)),
                Event::Claimed { id, .. } => back += usize::from(begun.contains(&id)),
                Event::Dispatched { id, .. } if id == *last.id() => break,
                _ => {}
            }
        }
        test.journal.open(gate);
        if back > 0 {
            break;
        }
    }
    assert!(back > 0, "no job had begun after a long one");
    long.iter().for_each(|gate| test.journal.open(gate));
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == ends).await;
    assert_eq!(ran.load(Ordering::SeqCst) as u64, ends);
    worker.stop().await;
}

#[tokio::test]
async fn a_timeout_counts_from_the_beginning_of_the_job() {
    let (_test, app) = shared().await;
    let options = fast().concurrency(1).prefetch(20).timeout(Duration::from_millis(400));
    let task = app
        .task(TASK, options, |_: Context, _: String| async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            Ok::<u64, JobError>(1)
        })
        .unwrap();
    let ids = ids(12);
    task.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), "x".to_owned()))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for id in &ids {
        task.handle(id).unwrap().result().await.unwrap();
    }
    worker.stop().await;
}

#[tokio::test]
async fn prefetched_payloads_take_only_a_few_mebibytes() {
    let (test, _app, task) = producing().await;
    let large = "x".repeat(300 * 1024);
    for id in ids(60) {
        task.dispatch(large.clone()).id(&id).await.unwrap();
    }
    let worker = test.start_worker(fast().concurrency(1).prefetch(100)).await;
    // 4 MiB are 13 of them.
    eventually("payloads are claimed", PATIENCE, async || task.counts().await.unwrap().claimed >= 8).await;
    test.epochs_pass(2).await;
    let claimed = task.counts().await.unwrap().claimed;
    assert!((8..=14).contains(&claimed), "{claimed}");
    worker.stop().await;
}

/// In this mode only the handler sends heartbeats, which it cannot do before it begins.
#[tokio::test]
async fn a_prefetched_job_gets_heartbeats_in_manual_mode_too() {
    let (test, _app, task) = producing().await;
    let ids = ids(4);
    dispatch(&task, "gate", &ids).await;
    let options = fast_with(StallOptions::new().heartbeat(Heartbeat::Manual)).concurrency(1).prefetch(3);
    let worker = test.start_worker(options).await;
    counts(&task, 3, 1).await;
    test.epochs_pass(3).await;
    assert_eq!(test.dump("stalls").await, None);
    test.journal.open("gate");
    for id in &ids {
        task.handle(id).unwrap().result().await.unwrap();
    }
    worker.stop().await;
}

#[tokio::test]
async fn two_tasks_with_prefetch_share_the_slots_of_a_worker() {
    let test = TestTask::new();
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix).build().await.unwrap();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut handles = Vec::new();
    for name in ["one", "other"] {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let task = app
            .task(name, fast().concurrency(4).prefetch(10), move |_: Context, _: String| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<u64, JobError>(1)
                }
            })
            .unwrap();
        handles.extend(task.dispatch_many((0..200).map(|_| "x".to_owned())).await.unwrap());
    }
    let worker = TestWorker::start(app.worker().max_jobs(3));
    for handle in handles {
        tokio::time::timeout(PATIENCE, handle.result()).await.expect("no slot comes free").unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    worker.stop().await;
}

#[tokio::test]
async fn prefetch_is_bounded() {
    let (_test, app) = shared().await;
    let declare = |name: &str, options: TaskOptions| {
        app.task(name, options, |_: Context, _: String| async { Ok::<u64, JobError>(1) }).map(drop)
    };
    declare("a", fast().concurrency(1).prefetch(100)).unwrap();
    declare("b", fast().concurrency(50).prefetch(500)).unwrap();
    let error = declare("c", fast().concurrency(1).prefetch(101)).unwrap_err().to_string();
    assert!(error.contains("prefetch") && error.contains("at most 100"), "{error}");
    assert!(declare("d", fast().concurrency(50).prefetch(501)).is_err());
}
