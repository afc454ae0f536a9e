//! Limits over all workers: how many jobs of a task run, and how many start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use heartline::inspect::describe;
use heartline::{
    App, Context, Error, JobError, JobState, JobValues, LimitReached, Observer, Rate, RunEnd, RunInfo, RunOutcome,
    StallAction, TaskOptions, TaskRef,
};

use crate::integration::fixtures::{alone, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, adaptive, counts};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// Counts how many handlers run at once, and keeps the fences of all runs: the time of their claims, us of the server.
#[derive(Clone, Default)]
struct Crowd {
    fences: Arc<Mutex<BTreeSet<u64>>>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    /// A worker whose handlers take a few ms each.
    fn worker(&self, app: &App, options: TaskOptions) -> (TaskRef<String, u64>, TestWorker) {
        let crowd = self.clone();
        let task = app.task(TASK, options, move |ctx: Context, _: String| {
            let crowd = crowd.clone();
            crowd.fences.lock().unwrap().insert(ctx.fence());
            async move {
                let now = crowd.now.fetch_add(1, Ordering::SeqCst) + 1;
                crowd.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(3)).await;
                crowd.now.fetch_sub(1, Ordering::SeqCst);
                Ok::<u64, JobError>(1)
            }
        });
        (task.unwrap(), TestWorker::start(app.worker()))
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn jobs(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|at| (format!("job-{at}"), "x".to_owned()))
}

#[tokio::test]
async fn no_more_jobs_run_than_max_running_allows_over_all_workers() {
    let (test, crowd) = (TestTask::new(), Crowd::default());
    let [one, other] = [test.app().await, test.app().await];
    let options = || adaptive().max_running(3).concurrency(10);
    let ((task, one), (_, other)) = (crowd.worker(&one, options()), crowd.worker(&other, options()));
    task.dispatch_many_with_ids(jobs(200)).await.unwrap();
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 200).await;
    assert_eq!(crowd.most(), 3);
    // Jobs that come one at a time while the limit is reached wake a worker too, once one has ended.
    for at in 200..260 {
        task.dispatch("x".into()).id(format!("job-{at}")).await.unwrap();
    }
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 260).await;
    assert_eq!((crowd.most(), test.dump("stalls").await), (3, None));
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_dispatch_says_how_many_starts_its_job_counts_as() {
    let (test, crowd) = (TestTask::new(), Crowd::default());
    let app = test.app().await;
    let rate = Rate::new(10, Duration::from_secs(3600));
    let (task, worker) = crowd.worker(&app, adaptive().rate(rate));
    for (id, cost) in [("one", 1), ("six", 6), ("five", 5)] {
        task.dispatch("x".into()).id(id).cost(cost).await.unwrap();
    }
    let ended = async |id: &str| task.handle(id).unwrap().state().await.unwrap() == JobState::Completed;
    eventually("two fit", PATIENCE, async || ended("one").await && ended("six").await).await;
    eventually("the task rests", PATIENCE, async || {
        let found = app.inspector().job(TASK, "five", JobValues::None).await.unwrap().unwrap();
        matches!(found.limit, Some(LimitReached::Resting { .. })) && found.state == JobState::Waiting
    })
    .await;
    let refused = task.dispatch("x".into()).cost(0).await.unwrap_err();
    assert!(matches!(&refused, Error::Config(faults) if faults.to_string().contains("cost")), "{refused}");
    worker.stop().await;
}

#[tokio::test]
async fn the_slot_of_a_dead_worker_is_free_once_its_job_is_taken() {
    let (redis, test) = alone();
    let (app, task) = test.producer().await;
    let options = || adaptive().max_running(1);
    let mortal = test.start_mortal_worker(&redis, options()).await;
    task.dispatch("gate".into()).id("held").await.unwrap();
    counts(&task, 0, 1).await;
    let heir = test.start_worker(options()).await;
    task.dispatch("go".into()).id("next").max_stalls(0).await.unwrap();
    test.journal.open("go");
    let report = app.inspector().job(&test.name, "next", JobValues::None).await.unwrap().unwrap();
    assert_eq!(report.limit, Some(LimitReached::MaxRunning));
    let why = "as many jobs run as max_running allows";
    let facts = describe::facts(&report, SystemTime::now());
    assert!(facts.contains(&("waits because", why.to_owned())), "{facts:?}");
    let report = app.inspector().task(&test.name).await.unwrap();
    assert_eq!(describe::task_limit(&report).as_deref(), Some(why));
    assert!(describe::options(&report).contains(&("max running", "1".to_owned())));
    assert_eq!(test.journal.runs_of("next").len(), 0);
    let mut stalls = app.on_stalled();
    mortal.dies().await;
    assert_eq!(next(&mut stalls).await.action, StallAction::Recovered);
    // The recovered job is first, and takes the only slot again.
    counts(&task, 0, 1).await;
    assert_eq!(test.journal.runs_of("next").len(), 0);
    test.journal.open("gate");
    task.handle("next").unwrap().result().await.unwrap();
    task.handle("held").unwrap().result().await.unwrap();
    heir.stop().await;
}

#[tokio::test]
async fn a_worker_without_the_limit_in_its_code_keeps_it_too() {
    let (test, crowd) = (TestTask::new(), Crowd::default());
    let [old, new] = [test.app().await, test.app().await];
    let (task, old) = crowd.worker(&old, adaptive().concurrency(10));
    old.working().await;
    let (_, new) = crowd.worker(&new, adaptive().concurrency(10).max_running(2));
    new.working().await;
    task.dispatch_many_with_ids(jobs(200)).await.unwrap();
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 200).await;
    assert_eq!(crowd.most(), 2);
    old.stop().await;
    new.stop().await;
}

#[tokio::test]
async fn partitions_share_a_limit() {
    let (test, crowd) = (TestTask::new(), Crowd::default());
    let app = test.app().await;
    let (task, worker) = crowd.worker(&app, adaptive().max_running(5).partitions(2).concurrency(10));
    worker.working().await;
    task.dispatch_many_with_ids(jobs(200)).await.unwrap();
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 200).await;
    assert!((3..=4).contains(&crowd.most()), "two in each: {}", crowd.most());
    worker.stop().await;
    // A worker that takes the number of partitions from the task is refused as well.
    let small = test.app().await;
    test.declare_at(&small, adaptive().max_running(1));
    let refused = small.worker().run_until(std::future::pending()).await.unwrap_err().to_string();
    assert!(refused.contains("max_running") && refused.contains("at least 2"), "{refused}");
}

#[tokio::test]
async fn no_window_has_more_starts_than_the_rate_allows() {
    const WINDOW: u64 = 500;
    let test = TestTask::new();
    let options = || adaptive().rate(Rate::new(20, Duration::from_millis(WINDOW)));
    let crowd = Crowd::default();
    let apps = [test.app().await, test.app().await, test.app().await];
    let mut workers: Vec<(TaskRef<String, u64>, TestWorker)> =
        apps.iter().map(|app| crowd.worker(app, options())).collect();
    let task = workers[0].0.clone();
    task.dispatch_many_with_ids(jobs(100)).await.unwrap();
    eventually("half have ended", PATIENCE, async || task.counts().await.unwrap().completed >= 50).await;
    // One dies, without a word.
    workers.remove(2).1.abort();
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 100).await;
    let starts = crowd.fences.lock().unwrap().clone();
    assert!(starts.len() >= 100);
    for first in &starts {
        let within = starts.range(*first..first + WINDOW * 1_000).count();
        assert!(within <= 20, "{within} starts from {first} on: {starts:?}");
    }
    for (_, worker) in workers {
        worker.stop().await;
    }
}

/// The jobs that have run, each with its first fence: the time of its claim, us of the server.
type Seen = Arc<Mutex<BTreeMap<String, u64>>>;

/// A handler whose first run of each job `busy` is rate limited for `rest`.
fn told(app: &App, options: TaskOptions, rest: Duration, seen: &Seen) -> TaskRef<String, u64> {
    let seen = Arc::clone(seen);
    let handler = move |ctx: Context, input: String| {
        let first = *seen.lock().unwrap().entry(ctx.id().to_string()).or_insert(ctx.fence());
        let is_first = first == ctx.fence();
        async move { if input == "busy" && is_first { Err(JobError::rate_limited(rest)) } else { Ok::<u64, JobError>(1) } }
    };
    app.task(TASK, options, handler).unwrap()
}

#[tokio::test]
async fn one_rate_limited_handler_lets_the_task_rest_for_all_workers() {
    const REST: Duration = Duration::from_millis(700);
    let (test, app) = shared().await;
    let other = test.app().await;
    let seen = Seen::default();
    let task = told(&app, adaptive(), REST, &seen);
    told(&other, adaptive(), REST, &seen);
    let workers = [TestWorker::start(app.worker()), TestWorker::start(other.worker())];
    for worker in &workers {
        worker.working().await;
    }
    task.dispatch("busy".into()).id("busy").await.unwrap();
    let rests = async || app.inspector().task(TASK).await.unwrap().parts[0].limit.is_some();
    eventually("the task rests", PATIENCE, rests).await;
    task.dispatch_many_with_ids(jobs(20)).await.unwrap();
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 21).await;
    let seen = seen.lock().unwrap().clone();
    let rested = seen["busy"] + REST.as_micros() as u64;
    assert!(seen.len() == 21 && seen.iter().all(|(id, at)| id == "busy" || *at >= rested), "{seen:?}");
    // It used no attempt, and nothing was counted as broken off.
    let job = task.job("busy").await.unwrap();
    assert_eq!((job.failed_attempts, job.snoozed_count, job.stalled_count), (0, 0, 0));
    let report = app.inspector().task(TASK).await.unwrap();
    assert_eq!((report.broken_off_since_completed, report.parts[0].limit), (0, None));
    for worker in workers {
        worker.stop().await;
    }
}

/// With the default prefetch, the worker holds jobs that it has claimed ahead.
#[tokio::test]
async fn a_rate_limited_worker_starts_none_of_the_jobs_that_it_claimed_ahead() {
    const REST: Duration = Duration::from_millis(500);
    let (_test, app) = shared().await;
    let starts = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&starts);
    let task: TaskRef<String, u64> = app
        .task(TASK, adaptive().concurrency(1), move |ctx: Context, _: String| {
            let mut log = log.lock().unwrap();
            log.push((ctx.id().to_string(), Instant::now()));
            let runs = log.iter().filter(|(id, _)| ctx.id().as_str() == id.as_str()).count();
            let is_told = ctx.id().as_str() == "job-500" && runs == 1;
            async move { if is_told { Err(JobError::rate_limited(REST)) } else { Ok::<u64, JobError>(1) } }
        })
        .unwrap();
    task.dispatch_many_with_ids(jobs(1_000)).await.unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 1_000).await;
    worker.stop().await;
    let starts = starts.lock().unwrap();
    assert_eq!(starts.len(), 1_001);
    let told = starts.iter().position(|(id, _)| id == "job-500").unwrap();
    let gap = starts[told + 1].1 - starts[told].1;
    assert!(gap >= REST, "{} started after {gap:?}", starts[told + 1].0);
}

/// The outcomes of runs.
#[derive(Clone, Default)]
struct Outcomes(Arc<Mutex<Vec<RunOutcome>>>);

impl Observer for Outcomes {
    fn ended(&self, _: &RunInfo<'_>, end: &RunEnd<'_>) {
        self.0.lock().unwrap().push(end.outcome);
    }
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_drain_waits_for_no_rate_and_for_no_rest() {
    let (_test, app) = shared().await;
    let day = Duration::from_secs(86_400);
    let task = told(&app, adaptive().rate(Rate::new(2, day)).max_running(1), day, &Seen::default());
    let inputs = ["a", "busy", "b", "c", "d"];
    task.dispatch_many_with_ids(inputs.iter().map(|input| ((*input).to_owned(), (*input).to_owned()))).await.unwrap();
    let outcomes = Outcomes::default();
    let drained = app.worker().observe(outcomes.clone()).drain().await.unwrap();
    assert_eq!((drained.completed, drained.put_off, drained.left.len()), (5, 1, 0));
    let limited = outcomes.0.lock().unwrap().iter().filter(|outcome| **outcome == RunOutcome::RateLimited).count();
    assert_eq!(limited, 1);
}

#[tokio::test]
async fn limits_that_cannot_hold_are_refused_with_the_field_and_the_value() {
    let (_test, app) = shared().await;
    let rate = |starts, ms| Rate::new(starts, Duration::from_millis(ms));
    for (options, field, value) in [
        (TaskOptions::new().max_running(0), "max_running", "0"),
        (TaskOptions::new().rate(rate(0, 1_000)), "rate.starts", "0"),
        (TaskOptions::new().rate(rate(1_000_001, 1_000)), "rate.starts", "1000001"),
        (TaskOptions::new().rate(rate(1, 9)), "rate.window", "9ms"),
        (TaskOptions::new().rate(rate(1, 86_400_001)), "rate.window", "86400.001s"),
        (TaskOptions::new().max_running(1).prefetch(5), "prefetch", "5"),
        (TaskOptions::new().max_running(1).partitions(2), "max_running", "1"),
        (TaskOptions::new().rate(rate(3, 1_000)).partitions(4), "rate.starts", "3"),
    ] {
        let refused = app.task(TASK, options, |_: Context, _: u64| async { Ok::<(), JobError>(()) }).unwrap_err();
        let Error::Config(faults) = refused else { panic!("{refused}") };
        let found: Vec<(&str, &str)> =
            faults.iter().map(|fault| (fault.field.as_str(), fault.value.as_str())).collect();
        assert_eq!(found, [(field, value)]);
    }
}
