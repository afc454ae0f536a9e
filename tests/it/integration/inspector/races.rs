//! Each action races with live workers: afterwards no job is missing, and no job has run that was cancelled at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    Context, Event, Inspector, JobError, JobFilter, JobHandle, JobSelection, JobState, SilentSelection, StallOptions,
    TaskRef,
};

use super::{all, events_by_job, is_sound, observed};
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{self, PATIENCE, eventually};

/// How often each race is run. `make check-races` runs them more often.
fn rounds() -> usize {
    let asked = std::env::var("HEARTLINE_RACES");
    asked.map_or_else(|_| support::rounds(50), |rounds| rounds.parse().expect("HEARTLINE_RACES is a number"))
}

/// How many jobs take part in a round.
const JOBS: usize = 40;

/// What the handlers did: how often each job ran to its end, and what it returned or how it failed.
type Ran = Arc<Mutex<BTreeMap<String, u32>>>;

/// A task with two workers, whose jobs fail if their input says so, and its Inspector.
struct Race {
    test: TestTask,
    task: TaskRef<bool, u64>,
    inspector: Inspector,
    ran: Ran,
    workers: Vec<TestWorker>,
    _apps: Vec<heartline::App>,
}

impl Race {
    async fn new() -> Race {
        let (test, app, inspector) = observed().await;
        let task = app.task_ref::<bool, u64>(TASK).unwrap();
        let (ran, mut workers, mut apps) = (Ran::default(), Vec::new(), vec![app]);
        for _ in 0..2 {
            let app = test.app().await;
            let log = ran.clone();
            let handler = move |ctx: Context, fails: bool| {
                let log = log.clone();
                async move {
                    tokio::task::yield_now().await;
                    *log.lock().unwrap().entry(ctx.id().to_string()).or_default() += 1;
                    if fails { Err(JobError::new("no".to_owned()).fatal()) } else { Ok(ctx.fence()) }
                }
            };
            app.task(TASK, fast_with(StallOptions::new().max_count(0)).concurrency(8), handler).unwrap();
            workers.push(TestWorker::start(app.worker()));
            apps.push(app);
        }
        for worker in &workers {
            worker.working().await;
        }
        Race { test, task, inspector, ran, workers, _apps: apps }
    }

    /// Waits until no job waits or runs.
    async fn is_idle(&self) {
        let idle = async || {
            let counts = self.inspector.task(TASK).await.unwrap().counts;
            counts.waiting + counts.running + counts.delayed == 0
        };
        eventually("every job has ended", PATIENCE, idle).await;
    }

    /// Every dispatched job is completed, failed, cancelled or removed, by its events and by its place; whatever a
    /// handler returned was recorded, unless a cancel of the running job came first.
    async fn is_whole(&self, dispatched: &BTreeSet<String>) -> BTreeMap<String, JobState> {
        let mut stands = BTreeMap::new();
        for state in [JobState::Completed, JobState::Failed, JobState::Cancelled] {
            for row in all(&self.inspector, &JobFilter::new(state)).await {
                let before = stands.insert(row.id.to_string(), state);
                assert_eq!(before, None, "{} is in two places", row.id);
            }
        }
        for (id, events) in events_by_job(&self.inspector).await {
            if !dispatched.contains(&id) {
                continue;
            }
            let names: Vec<&str> = events.iter().map(Event::name).collect();
            assert_eq!(names[0], "task:dispatched", "{id}: {names:?}");
            let last = *names.last().unwrap();
            let wanted = match stands.get(&id) {
                Some(JobState::Completed) => "task:completed",
                Some(JobState::Failed) => "task:failed",
                Some(JobState::Cancelled) => "task:cancelled",
                _ => "task:removed",
            };
            assert_eq!(last, wanted, "{id}: {names:?}");
            // It ends once for each dispatch or retry, and starts at most once in each such life.
            let count = |name: &str| names.iter().filter(|its| **its == name).count();
            let lives = 1 + count("task:manually_retried");
            let ends = count("task:completed") + count("task:failed") + count("task:cancelled");
            let removed = usize::from(last == "task:removed");
            assert!(ends == lives || ends + removed == lives, "{id}: {names:?}");
            assert_eq!(count("task:outcome_rejected"), 0, "{id}: {names:?}");
            let ran = self.ran.lock().unwrap().get(&id).copied().unwrap_or(0) as usize;
            // If the cancel comes between the claim and the handler, the handler does not begin.
            let (started, cancelled) = (count("task:started"), count("task:cancelled"));
            assert!(ran <= started && started <= ran + cancelled, "{id} ran {ran} times: {names:?}");
            assert!(ran >= count("task:completed") + count("task:failed"), "{id}: {names:?}");
            // The value of the handler was recorded, or its cancel was.
            let recorded = count("task:completed") + count("task:failed");
            assert!(ran <= recorded + cancelled, "{id}: {names:?}");
            // No ended or cancelled job starts before it is retried.
            for pair in names.windows(2) {
                let has_ended = ["task:completed", "task:failed", "task:cancelled"].contains(&pair[0]);
                assert!(!has_ended || ["task:manually_retried", "task:removed"].contains(&pair[1]), "{id}: {names:?}");
            }
        }
        let known: BTreeSet<String> = events_by_job(&self.inspector).await.into_keys().collect();
        assert!(dispatched.is_subset(&known), "some jobs have no events");
        is_sound(&self.inspector).await;
        stands
    }

    /// In each round, lets actions race with jobs. `check` looks at what the actions returned and where the jobs
    /// ended, and returns how many jobs must be left.
    async fn run<T>(
        dispatch: impl AsyncFn(&Race) -> Vec<JobHandle<u64>>,
        act: impl AsyncFn(&Race, usize, Vec<String>) -> T,
        check: impl Fn(&Race, T, &BTreeMap<String, JobState>) -> u64,
    ) {
        let race = Race::new().await;
        for round in 0..rounds() {
            let jobs = dispatch(&race).await;
            let done = act(&race, round, jobs.iter().map(|job| job.id().to_string()).collect()).await;
            race.is_idle().await;
            let states = race.is_whole(&ids_of(&jobs)).await;
            let left = check(&race, done, &states);
            assert_eq!(states.len() as u64, left, "{round}: {states:?}");
            race.clear().await;
        }
        race.stop().await;
    }

    /// Removes ended jobs, so that each round begins with an empty task and has all its events.
    async fn clear(&self) {
        for state in [JobState::Completed, JobState::Failed, JobState::Cancelled] {
            self.inspector.purge(TASK, state).await.unwrap();
        }
        self.test.run::<u64>("DEL", "events", &[]).await;
        self.ran.lock().unwrap().clear();
    }

    async fn stop(self) {
        let counts = self.inspector.task(TASK).await.unwrap().counts;
        assert_eq!((counts.waiting, counts.running, counts.delayed), (0, 0, 0));
        for worker in self.workers {
            worker.stop().await;
        }
        assert_eq!(self.test.run::<u64>("XLEN", "stalls", &[]).await, 0);
    }
}

fn ids_of(jobs: &[JobHandle<u64>]) -> BTreeSet<String> {
    jobs.iter().map(|job| job.id().to_string()).collect()
}

/// Jobs for a round. Every `fails`-th one fails.
fn batch(fails: usize) -> impl AsyncFn(&Race) -> Vec<JobHandle<u64>> {
    async move |race: &Race| race.task.dispatch_many((0..JOBS).map(move |at| at % fails == 0)).await.unwrap()
}

/// The jobs by their ids, or all in this state.
fn named_or(round: usize, named: Vec<String>, state: JobState) -> JobSelection {
    if round.is_multiple_of(2) { named.into() } else { JobFilter::new(state).into() }
}

/// Takes a different time in each round.
async fn a_moment(round: usize) {
    tokio::time::sleep(Duration::from_micros((round as u64 * 397) % 4000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_can_race_with_claims_and_ends() {
    let cancel = async |race: &Race, round: usize, named: Vec<String>| {
        a_moment(round).await;
        let jobs = named_or(round, named, JobState::Waiting);
        race.inspector.cancel(TASK, jobs, "race").await.unwrap()
    };
    Race::run(batch(5), cancel, |race, report, states| {
        let cancelled = states.values().filter(|state| **state == JobState::Cancelled).count() as u64;
        // A cancel may be requested and the end of the job still come first; no job is cancelled without a request.
        assert!(cancelled >= report.done && cancelled <= report.done + report.requested, "{cancelled} {report:?}");
        let ran = race.ran.lock().unwrap().len() as u64;
        assert!(ran + report.done <= JOBS as u64, "{ran} ran, {report:?}");
        JOBS as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removes_can_race_with_claims_and_ends() {
    let remove = async |race: &Race, round: usize, named: Vec<String>| {
        a_moment(round).await;
        race.inspector.remove(TASK, named_or(round, named, JobState::Waiting)).await.unwrap()
    };
    Race::run(batch(5), remove, |_, report, states| {
        assert!(states.values().all(|state| *state != JobState::Cancelled));
        JOBS as u64 - report.done
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_can_race_with_ends_and_claims() {
    let retry = async |race: &Race, round: usize, named: Vec<String>| {
        a_moment(round).await;
        let mut done = 0;
        for again in 0..3 {
            let jobs = named_or(again + round, named.clone(), JobState::Failed);
            done += race.inspector.retry(TASK, jobs).await.unwrap().done;
        }
        done
    };
    Race::run(batch(2), retry, |race, done, _| {
        let ran: u32 = race.ran.lock().unwrap().values().sum();
        assert_eq!(u64::from(ran), JOBS as u64 + done, "each retry is one more run");
        JOBS as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_now_can_race_with_jobs_that_become_due() {
    let dispatch = async |race: &Race| {
        let mut jobs = Vec::new();
        for at in 0..JOBS as u64 / 2 {
            jobs.push(race.task.dispatch(at % 5 == 0).delay(Duration::from_millis(1 + at % 7)).await.unwrap());
        }
        jobs
    };
    let run_now = async |race: &Race, round: usize, named: Vec<String>| {
        race.inspector.run_now(TASK, named_or(round, named, JobState::Delayed)).await.unwrap();
    };
    Race::run(dispatch, run_now, |race, (), _| {
        assert!(race.ran.lock().unwrap().values().all(|runs| *runs == 1));
        JOBS as u64 / 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_during_a_pause_that_races_with_claims() {
    let pause = async |race: &Race, round: usize, _: Vec<String>| {
        a_moment(round).await;
        race.inspector.pause(TASK, "race").await.unwrap();
        let nobody_runs = async || race.inspector.task(TASK).await.unwrap().counts.running == 0;
        eventually("the jobs that ran have ended", PATIENCE, nobody_runs).await;
        let before = race.inspector.task(TASK).await.unwrap().counts;
        race.inspector.task(TASK).await.unwrap();
        assert_eq!(race.inspector.task(TASK).await.unwrap().counts, before, "{round}");
        race.inspector.resume(TASK).await.unwrap();
    };
    Race::run(batch(5), pause, |race, (), _| {
        assert!(race.ran.lock().unwrap().values().all(|runs| *runs == 1));
        JOBS as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_of_every_kind_can_race_with_each_other() {
    let act = async |race: &Race, round: usize, named: Vec<String>| {
        let inspector = &race.inspector;
        let some = |step: usize| named.iter().step_by(step).cloned().collect::<Vec<_>>();
        let (cancelled, retried, removed, promoted, paused) = tokio::join!(
            async {
                a_moment(round).await;
                inspector.cancel(TASK, some(2), "race").await
            },
            async {
                a_moment(round + 3).await;
                inspector.retry(TASK, some(1)).await
            },
            async {
                a_moment(round + 5).await;
                inspector.remove(TASK, some(7)).await
            },
            async { inspector.run_now(TASK, some(3)).await },
            async {
                inspector.pause(TASK, "").await.unwrap();
                a_moment(round).await;
                inspector.resume(TASK).await
            },
        );
        let (_, _, removed, _) = (cancelled.unwrap(), retried.unwrap(), removed.unwrap(), promoted.unwrap());
        paused.unwrap();
        removed.done
    };
    Race::run(batch(3), act, |_, removed, _| JOBS as u64 - removed).await;
}

/// A person recovers jobs while workers start: each job runs, and none twice at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_by_a_person_can_race_with_sweeping_workers() {
    // Each round watches for an interval of a second; five rounds run at a time.
    let rounds = (rounds() / 10).max(1);
    for _ in 0..rounds {
        futures_util::future::join_all((0..5).map(recovery)).await;
    }
}

async fn recovery(at: u64) {
    let (test, app, inspector) = observed().await;
    let worker = test.start_worker(fast()).await;
    worker.stop().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let jobs = task.dispatch_many(vec!["open".to_owned(); 300]).await.unwrap();
    let mut dead = Puppet::of(&test).await;
    while dead.claim(200).await.len() == 200 {}
    assert!(dead.sweep(test.epoch().await, "0", 200).await.unwrap().snapshot);
    test.journal.open("open");
    let worker = test.start_worker(fast_with(StallOptions::new().max_count(1))).await;
    tokio::time::sleep(Duration::from_millis(at * 3)).await;
    let named = SilentSelection::ids(jobs.iter().map(|job| job.id().to_string()));
    let (some, others) =
        tokio::join!(inspector.recover_running(TASK, named), inspector.recover_running(TASK, SilentSelection::all()));
    let (some, others) = (some.unwrap(), others.unwrap());
    assert!(some.done + others.done <= 300, "{some:?} {others:?}");
    eventually("all have run", PATIENCE, async || task.counts().await.unwrap().completed == 300).await;
    // Each job was decided once: by a person or by the worker.
    let stalls: Vec<String> = test.stalls().await.into_iter().flatten().map(|(id, _)| id).collect();
    assert_eq!((stalls.len(), stalls.into_iter().collect::<BTreeSet<_>>()), (300, ids_of(&jobs)));
    for job in &jobs {
        assert_eq!(test.journal.runs_of(job.id()).len(), 1, "{}", job.id());
    }
    is_sound(&inspector).await;
    worker.stop().await;
}
