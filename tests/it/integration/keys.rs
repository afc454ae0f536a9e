//! Jobs with keys: turns between keys, and the limits of each key over all workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use heartline::inspect::describe::facts;
use heartline::{
    App, Context, DiagnosisKind, Error, JobError, JobHandle, JobValues, LaneState, Limit, LimitReached, Rate,
    StallAction, TaskOptions, TaskRef, Unique,
};
use serde::{Deserialize, Serialize};

use crate::integration::fixtures::{alone, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, adaptive, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};

/// The input of the jobs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Hook {
    customer: String,
    ms: u64,
}

fn of(customer: &str, ms: u64) -> Hook {
    Hook { customer: customer.to_owned(), ms }
}

fn keyed() -> TaskOptions {
    adaptive().key("/customer")
}

/// The runs of jobs: the fence, which is the time of the claim in us of the server, the key and the id.
#[derive(Clone, Default)]
struct Runs {
    all: Arc<Mutex<Vec<(u64, String, String)>>>,
    now: Arc<Mutex<BTreeMap<String, usize>>>,
    most: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Runs {
    /// Declares a handler that takes as long as the input says. The first run of each job of `busy` is rate limited.
    fn task(&self, app: &App, options: TaskOptions) -> TaskRef<Hook, u64> {
        let runs = self.clone();
        let handler = move |ctx: Context, input: Hook| {
            let (runs, key) = (runs.clone(), input.customer.clone());
            runs.all.lock().unwrap().push((ctx.fence(), key.clone(), ctx.id().to_string()));
            let count = runs.count(&key, 1);
            runs.most.lock().unwrap().entry(key.clone()).and_modify(|most| *most = count.max(*most)).or_insert(count);
            let is_first = runs.all.lock().unwrap().iter().filter(|(_, _, id)| *id == ctx.id().as_str()).count() == 1;
            async move {
                tokio::time::sleep(Duration::from_millis(input.ms)).await;
                runs.count(&key, -1);
                let is_told = key == "busy" && is_first;
                if is_told { Err(JobError::rate_limited(REST)) } else { Ok::<u64, JobError>(1) }
            }
        };
        app.task(TASK, options, handler).unwrap()
    }

    fn count(&self, key: &str, step: isize) -> usize {
        let mut now = self.now.lock().unwrap();
        let count = now.entry(key.to_owned()).or_default();
        *count = count.saturating_add_signed(step);
        *count
    }

    /// The keys of all runs, in the order of their claims.
    fn order(&self) -> Vec<String> {
        let mut all = self.all.lock().unwrap().clone();
        all.sort();
        all.into_iter().map(|(_, key, _)| key).collect()
    }

    fn fences_of(&self, key: &str) -> Vec<u64> {
        let mut fences: Vec<u64> =
            self.all.lock().unwrap().iter().filter(|(_, own, _)| own == key).map(|(fence, ..)| *fence).collect();
        fences.sort_unstable();
        fences
    }
}

/// For how long a rate limited key rests.
const REST: Duration = Duration::from_millis(700);

async fn all_completed(task: &TaskRef<Hook, u64>, count: u64) {
    eventually("all have completed", PATIENCE, async || task.counts().await.unwrap().completed == count).await;
}

#[tokio::test]
async fn keys_take_turns_however_many_jobs_the_others_have() {
    let (_test, app) = shared().await;
    let runs = Runs::default();
    let task = runs.task(&app, keyed().concurrency(2));
    task.dispatch_many((0..4_000).map(|_| of("large", 0))).await.unwrap();
    let small = (0..99).flat_map(|tenant| (0..10).map(move |_| of(&format!("small-{tenant}"), 0)));
    task.dispatch_many(small).await.unwrap();
    let worker = TestWorker::start(app.worker());
    all_completed(&task, 4_990).await;
    worker.stop().await;
    let order = runs.order();
    let first = |tenant: u32| order.iter().position(|key| *key == format!("small-{tenant}")).unwrap();
    let latest = (0..99).map(first).max().unwrap();
    assert!(latest < 110, "the last small tenant begins as number {latest}");
    let last_small = order.iter().rposition(|key| key != "large").unwrap();
    assert!(last_small < 1_100, "the last job of a small tenant begins as number {last_small}");
}

#[tokio::test]
async fn no_more_jobs_of_a_key_run_than_its_limit_allows_over_all_workers() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let options = || keyed().concurrency(10).per_key(Limit::new().running(2));
    let [one, other] = [test.app().await, test.app().await];
    let (task, _) = (runs.task(&one, options()), runs.task(&other, options()));
    let workers = [TestWorker::start(one.worker()), TestWorker::start(other.worker())];
    task.dispatch_many((0..150).map(|at| of(["a", "b", "c"][at % 3], 3))).await.unwrap();
    all_completed(&task, 150).await;
    // Jobs that come one at a time while the key is full wake a worker too, once one has ended.
    for _ in 0..40 {
        task.dispatch(of("a", 3)).await.unwrap();
    }
    all_completed(&task, 190).await;
    let most = runs.most.lock().unwrap().clone();
    assert_eq!(most, BTreeMap::from(["a", "b", "c"].map(|key| (key.to_owned(), 2))));
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(test.dump("laneHeld").await, None);
}

#[tokio::test]
async fn the_slot_of_a_dead_worker_goes_to_the_next_job_of_the_key() {
    let (redis, test) = alone();
    let (app, task) = test.producer().await;
    let options = || adaptive().per_key(Limit::new().running(1));
    let mortal = test.start_mortal_worker(&redis, options()).await;
    task.dispatch("gate".into()).id("held").key("acme").max_stalls(0).await.unwrap();
    eventually("it runs", PATIENCE, async || task.counts().await.unwrap().running == 1).await;
    let heir = test.start_worker(options()).await;
    task.dispatch("go".into()).id("next").key("acme").await.unwrap();
    task.dispatch("go".into()).id("other").key("umbrella").await.unwrap();
    test.journal.open("go");
    task.handle("other").unwrap().result().await.unwrap();
    let waits = async || app.inspector().job(&test.name, "next", JobValues::None).await.unwrap().unwrap();
    eventually("the key is full", PATIENCE, async || {
        let report = waits().await;
        assert_eq!(report.key.as_deref(), Some("acme"));
        matches!(report.limit, Some(LimitReached::KeyFull { .. }))
    })
    .await;
    assert_eq!(test.journal.runs_of("next").len(), 0);
    let mut stalls = app.on_stalled();
    mortal.dies().await;
    assert_eq!(next(&mut stalls).await.action, StallAction::Failed);
    task.handle("next").unwrap().result().await.unwrap();
    heir.stop().await;
}

#[tokio::test]
async fn a_rate_holds_for_each_key_and_a_rate_limited_handler_lets_only_its_key_rest() {
    const WINDOW: u64 = 400;
    let (test, app) = shared().await;
    let runs = Runs::default();
    let rate = Rate::new(10, Duration::from_millis(WINDOW));
    let task = runs.task(&app, keyed().concurrency(20).per_key(Limit::new().rate(rate)));
    let other = test.app().await;
    runs.task(&other, keyed().concurrency(20).per_key(Limit::new().rate(rate)));
    let workers = [TestWorker::start(app.worker()), TestWorker::start(other.worker())];
    task.dispatch_many((0..90).map(|at| of(["a", "b"][at % 2], 1))).await.unwrap();
    let told = task.dispatch(of("busy", 0)).await.unwrap();
    let rests = async || {
        let report = app.inspector().job(TASK, told.id().as_str(), JobValues::None).await.unwrap().unwrap();
        matches!(report.limit, Some(LimitReached::KeyResting { .. }))
    };
    eventually("the key rests", PATIENCE, rests).await;
    task.dispatch_many((0..3).map(|_| of("busy", 0))).await.unwrap();
    all_completed(&task, 94).await;
    for key in ["a", "b"] {
        let fences = runs.fences_of(key);
        for (at, first) in fences.iter().enumerate() {
            let within = fences[at..].iter().take_while(|fence| **fence < first + WINDOW * 1_000).count();
            assert!(within <= 10, "{within} starts of {key} from {first} on");
        }
    }
    let busy = runs.fences_of("busy");
    assert!(busy[1..].iter().all(|fence| *fence >= busy[0] + REST.as_micros() as u64), "{busy:?}");
    let job = task.job(told.id()).await.unwrap();
    assert_eq!((job.failed_attempts, job.stalled_count), (0, 0));
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn every_sender_finds_the_key_in_the_input() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let worker_app = test.app().await;
    let task = runs.task(&worker_app, keyed().per_key(Limit::new().running(1)));
    let worker = TestWorker::start(worker_app.worker());
    worker.working().await;
    // A producer that does not know the option.
    let producer = test.app().await;
    let plain = producer.task_ref::<Hook, u64>(TASK).unwrap();
    let key = async |id| app_key(&producer, id).await;
    let first = plain.dispatch(of("acme", 2_000)).await.unwrap();
    let unique = plain.dispatch(of("acme", 0)).unique(Unique::by("order-7")).await.unwrap();
    plain.dispatch(of("acme", 0)).key("own").await.unwrap().result().await.unwrap();
    assert_eq!(key(first.id()).await.as_deref(), Some("acme"), "it still runs");
    let later = plain.dispatch(of("acme", 0)).delay(Duration::from_millis(50)).await.unwrap();
    assert_eq!((key(first.id()).await.as_deref(), key(unique.id()).await.as_deref()), (Some("acme"), Some("acme")));
    assert_eq!(key(later.id()).await.as_deref(), Some("acme"));
    let missing = worker_app.task_ref::<u64, u64>(TASK).unwrap().dispatch(7).await.unwrap_err();
    let Error::Config(faults) = &missing else { panic!("{missing}") };
    assert!(faults.to_string().contains("/customer"), "{faults}");
    let invalid = plain.dispatch(of("acme", 0)).key("a\nb").await.unwrap_err();
    assert!(matches!(&invalid, Error::Config(faults) if faults.to_string().contains("key")), "{invalid}");
    all_completed(&task, 4).await;
    worker.stop().await;
}

async fn app_key(app: &App, id: &heartline::JobId) -> Option<String> {
    app.inspector().job(TASK, id.as_str(), JobValues::None).await.unwrap().unwrap().key
}

#[tokio::test]
async fn all_jobs_of_a_key_are_in_one_partition() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let task = runs.task(&app, keyed().partitions(3).concurrency(10).per_key(Limit::new().running(1)));
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let jobs = task.dispatch_many((0..60).map(|at| of(["a", "b", "c", "d"][at % 4], 1))).await.unwrap();
    for job in jobs {
        assert_eq!(job.result().await.unwrap(), 1, "the handle leads to the partition of the key");
    }
    for _ in 0..12 {
        task.dispatch(of("a", 1)).await.unwrap();
    }
    all_completed(&task, 72).await;
    assert!(runs.most.lock().unwrap().values().all(|most| *most == 1));
    let refused = task.dispatch(of("a", 1)).id("chosen").await.unwrap_err();
    assert!(matches!(&refused, Error::Config(faults) if faults.to_string().contains("3 partitions")), "{refused}");
    worker.stop().await;
}

#[tokio::test]
async fn settings_of_one_key_hold_at_once_for_all_workers() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let task = runs.task(&app, keyed().partitions(2).concurrency(9).per_key(Limit::new().running(1)));
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let lanes = task.lanes();
    lanes.set("acme", Limit::new().running(3)).await.unwrap();
    assert!(lanes.pause("globex").await.unwrap() && !lanes.pause("globex").await.unwrap());
    for key in ["acme", "globex", "initech"] {
        task.dispatch_many((0..6).map(|_| of(key, 20))).await.unwrap();
    }
    let ended = |key, count| {
        let runs = &runs;
        let done = move || async move { runs.fences_of(key).len() == count };
        async move { eventually("its jobs have started", PATIENCE, done).await }
    };
    ended("acme", 6).await;
    ended("initech", 6).await;
    assert_eq!(*runs.most.lock().unwrap(), BTreeMap::from([("acme".to_owned(), 3), ("initech".to_owned(), 1)]));
    // A paused key is explained, and starts after its pause.
    let paused = app.inspector().by("ada").lanes(TASK).unwrap();
    eventually("a claim has found its pause", PATIENCE, async || {
        let lane = paused.get("globex").await.unwrap().lane;
        matches!(lane.limit, Some(LimitReached::KeyPaused { .. })) && lane.state == LaneState::Full && lane.waiting == 6
    })
    .await;
    let with_settings = paused.with_settings(10).await.unwrap();
    let names: Vec<_> = with_settings.iter().map(|lane| lane.key.as_deref().unwrap()).collect();
    assert_eq!(names, ["acme", "globex"]);
    assert!(paused.resume("globex").await.unwrap() && !paused.resume("globex").await.unwrap());
    ended("globex", 6).await;
    lanes.reset("acme").await.unwrap();
    assert_eq!(lanes.with_settings(10).await.unwrap().len(), 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_waiting_job_says_who_holds_the_slots_of_its_key() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let task = runs.task(&app, keyed().concurrency(2).per_key(Limit::new().running(1)));
    let first = task.dispatch(of("acme", 60_000)).await.unwrap();
    let second = task.dispatch(of("acme", 0)).await.unwrap();
    let other = task.dispatch(of("globex", 0)).await.unwrap();
    let why = async |job: &JobHandle<u64>| {
        let found = app.inspector().job(TASK, job.id().as_str(), JobValues::None).await.unwrap().unwrap();
        facts(&found, SystemTime::now()).into_iter().find(|(name, _)| *name == "waits because").map(|(_, why)| why)
    };
    assert_eq!(why(&first).await.as_deref(), Some("acme is next in turn"));
    task.dispatch(of("globex", 0)).await.unwrap();
    let worker = TestWorker::start(app.worker());
    other.result().await.unwrap();
    eventually("it holds the slot", PATIENCE, async || runs.fences_of("acme").len() == 1).await;
    let said = why(&second).await.unwrap();
    let held = format!("acme is full: 1 of 1 held, by {} on {} for ", first.id(), worker.id);
    assert!(said.starts_with(&held), "{said}");
    assert_eq!(why(&first).await, None);
    let lane = task.lanes().get("acme").await.unwrap();
    assert_eq!((lane.lane.waiting, lane.lane.held, lane.lane.running), (1, 1, Some(1)));
    first.cancel("enough").await.unwrap();
    second.result().await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn a_key_that_has_been_full_for_an_hour_is_reported() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let task = runs.task(&app, keyed());
    let inspector = app.inspector();
    let read = async || inspector.task(TASK).await.unwrap();
    assert_eq!(read().await.lanes, None);
    task.dispatch_many([of("acme", 0), of("globex", 0)]).await.unwrap();
    let found = read().await;
    assert_eq!(found.lanes.map(|lanes| (lanes.ready, lanes.full, lanes.full_since)), Some((2, 0, None)));
    for (minutes, is_reported) in [(59, false), (61, true)] {
        let since = found.as_of.duration_since(SystemTime::UNIX_EPOCH).unwrap() - Duration::from_secs(60 * minutes);
        let score = (6_000_000_000_000_000 + since.as_millis()).to_string();
        test.run::<u64>("ZADD", "turns", &[&score, "acme"]).await;
        let found = read().await;
        assert_eq!(found.lanes.unwrap().full, 1);
        let said = inspector.diagnose_task(&found).await.unwrap();
        let said = said.iter().find(|said| matches!(said.kind, DiagnosisKind::KeyFull { full: 1, .. }));
        assert_eq!(said.is_some(), is_reported, "{minutes}");
    }
}

#[tokio::test]
async fn a_paused_key_with_waiting_jobs_is_reported_at_once() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let task = runs.task(&app, keyed());
    let inspector = app.inspector();
    let said = async || {
        let said = inspector.diagnose().await.unwrap();
        said.iter().find(|said| matches!(said.kind, DiagnosisKind::KeysPaused { .. })).map(ToString::to_string)
    };
    task.lanes().pause("acme").await.unwrap();
    assert_eq!(said().await, None, "no job of the key waits");
    task.dispatch_many([of("acme", 0), of("globex", 0)]).await.unwrap();
    let _worker = TestWorker::start(app.worker());
    eventually("the pause is reported", PATIENCE, async || said().await).await;
    task.lanes().resume("acme").await.unwrap();
    assert_eq!(said().await, None);
}

#[tokio::test]
async fn settings_of_keys_are_checked() {
    let (test, runs) = (TestTask::new(), Runs::default());
    let app = test.app().await;
    let lanes = runs.task(&app, keyed()).lanes();
    let said = |refused: Result<(), Error>| refused.unwrap_err().to_string();
    assert!(said(lanes.set("acme", Limit::new().running(0)).await).contains("running"));
    assert!(said(lanes.set("", Limit::new()).await).contains("key"));
    assert!(said(lanes.set_weight("acme", 101).await).contains("1 to 100"));
    assert!(said(lanes.list(None, 0).await.map(drop)).contains("limit"));
    assert!(app.inspector().lanes("a b").is_err());
}

#[tokio::test]
async fn options_of_keys_are_checked() {
    let (_test, app) = shared().await;
    for (options, field, value) in [
        (TaskOptions::new().key("customer"), "key", "customer"),
        (TaskOptions::new().key("/customer").prefetch(5), "prefetch", "5"),
        (TaskOptions::new().per_key(Limit::new().running(0)), "per_key.running", "0"),
        (TaskOptions::new().per_key(Limit::new().rate(Rate::new(0, REST))), "rate.starts", "0"),
    ] {
        let refused = app.task(TASK, options, |_: Context, _: u64| async { Ok::<(), JobError>(()) }).unwrap_err();
        let Error::Config(faults) = refused else { panic!("{refused}") };
        let found: Vec<(&str, &str)> =
            faults.iter().map(|fault| (fault.field.as_str(), fault.value.as_str())).collect();
        assert_eq!(found, [(field, value)]);
    }
}

#[tokio::test]
async fn limits_of_each_key_without_a_key_are_logged_once() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let app = test.app().await;
    let name = test.prefix.replace(':', "-");
    let options = fast().per_key(Limit::new().running(2));
    let task = app.task(&name, options, |_: Context, (): ()| async { Ok::<_, JobError>(()) }).unwrap();
    let line = "a job has no key, so no limit of a key applies to it";
    task.dispatch(()).key("acme").await.unwrap();
    assert!(!warnings.all().iter().any(|warning| warning.contains(&name)), "{:#?}", warnings.all());
    task.dispatch_many([(), ()]).await.unwrap();
    task.dispatch(()).await.unwrap();
    let lines = warnings.all().into_iter().filter(|warning| warning.contains(&name) && warning.contains(line));
    assert_eq!(lines.count(), 1);
}
