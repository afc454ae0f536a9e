//! Schedules: what the code declares, what producers write, and that each tick is accounted for once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heartline::testing::TestApp;
use heartline::{
    App, Context, Error, Event, JobError, JobState, Overlap, Schedule, ScheduleInfo, ScheduleSource, TaskDef,
    TaskOptions, TaskRef, Tick,
};

use crate::integration::fixtures::producing;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

pub const SECOND: Duration = Duration::from_secs(1);

/// An App with the task of the test and one schedule of it.
pub async fn declared(test: &TestTask, name: &str, schedule: Schedule) -> (App, TaskRef<String, u64>) {
    let app = test.app().await;
    let task = test.declare_at(&app, fast()).schedule(name, schedule, "go".to_owned()).unwrap();
    (app, task)
}

/// Waits until the schedule is in this state.
pub async fn becomes<I, O>(
    task: &TaskRef<I, O>,
    name: &str,
    what: &str,
    is_so: impl Fn(&ScheduleInfo) -> bool,
) -> ScheduleInfo {
    eventually(what, PATIENCE, async || {
        let info = task.schedules().get(name).await.ok().flatten();
        info.filter(|info| is_so(info))
    })
    .await
}

/// Checks that each tick of a schedule that fires every second is accounted for once.
pub fn accounted_for(info: &ScheduleInfo) {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ticks = info.last.map_or(0, |last| seconds(last) - seconds(info.since));
    let counted = info.fired + info.overlapped + info.missed_ticks + info.paused_ticks;
    assert_eq!(counted + u64::from(info.pending.is_some()), ticks, "{info:?}");
}

/// The ids of the jobs of all ticks since the creation of a schedule, in order, if each had one.
pub fn tick_ids(info: &ScheduleInfo) -> Vec<String> {
    let ticks = info.schedule.as_ref().unwrap().preview(info.since).take_while(|due| Some(*due) <= info.last);
    let id = |due: SystemTime| format!("{}@{}", info.name, due.duration_since(UNIX_EPOCH).unwrap().as_millis());
    ticks.map(id).collect()
}

/// The jobs of the task, with the time of the server at which each was created, ms.
pub async fn created(test: &TestTask) -> BTreeMap<String, u64> {
    test.run("HGETALL", "dispatchedAt", &[]).await
}

/// The id of a job, its tick and its input, as its handler saw them.
type SeenRun = (String, Option<Tick>, String);

#[tokio::test]
async fn each_tick_of_a_schedule_in_code_becomes_one_job() {
    let test = TestTask::new();
    let app = test.app().await;
    let mut events = app.events();
    let seen: Arc<Mutex<Vec<SeenRun>>> = Arc::default();
    let runs = Arc::clone(&seen);
    let handler = move |ctx: Context, input: String| {
        runs.lock().unwrap().push((ctx.id().to_string(), ctx.tick().cloned(), input));
        async { Ok::<_, JobError>(0_u64) }
    };
    let task = app.task(TASK, fast(), handler).unwrap();
    let task = task.schedule("poll", Schedule::every(SECOND), "now".to_owned()).unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("three ticks ran", PATIENCE, async || seen.lock().unwrap().len() >= 3).await;
    worker.stop().await;

    let seen = seen.lock().unwrap().clone();
    let mut before = None;
    for (id, tick, input) in &seen {
        let tick = tick.as_ref().unwrap();
        let due = tick.due.duration_since(UNIX_EPOCH).unwrap().as_millis();
        assert_eq!((id, input.as_str()), (&format!("poll@{due}"), "now"));
        assert_eq!((tick.schedule.as_str(), tick.previous), ("poll", before));
        before = Some(tick.due);
    }
    let info = task.schedules().get("poll").await.unwrap().unwrap();
    accounted_for(&info);
    assert_eq!((info.source, info.rule.as_str(), info.fault.as_deref()), (ScheduleSource::Code, "every 1s", None));
    assert!(info.fired as usize >= seen.len() && info.recent.len() >= 3, "{info:?}");
    let scheduled = loop {
        if let Event::Scheduled { id, schedule, due, .. } = next(&mut events).await {
            break (id.to_string(), schedule, due);
        }
    };
    assert_eq!(scheduled, (seen[0].0.clone(), "poll".to_owned(), seen[0].1.as_ref().unwrap().due));
    assert_eq!(task.job(&seen[0].0).await.unwrap().state, JobState::Completed);
}

#[tokio::test]
async fn several_workers_fire_each_tick_once() {
    let test = TestTask::new();
    test.journal.open("go");
    let mut workers = Vec::new();
    for _ in 0..3 {
        let (app, _task) = declared(&test, "poll", Schedule::every(SECOND).overlap(Overlap::Allow)).await;
        workers.push(TestWorker::start(app.worker()));
    }
    let (_app, task) = test.producer().await;
    becomes(&task, "poll", "four ticks fired", |info| info.fired >= 4).await;
    for worker in workers {
        worker.stop().await;
    }
    let info = task.schedules().get("poll").await.unwrap().unwrap();
    accounted_for(&info);
    assert_eq!((info.overlapped, info.missed_ticks), (0, 0), "{info:?}");
    let runs = test.journal.runs();
    let ids: BTreeSet<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(ids.len(), runs.len(), "{runs:?}");
}

#[tokio::test]
async fn a_tick_that_overlaps_makes_no_job() {
    let test = TestTask::new();
    let (app, task) = declared(&test, "poll", Schedule::every(SECOND)).await;
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    let info = becomes(&task, "poll", "two ticks overlap", |info| info.overlapped >= 2).await;
    accounted_for(&info);
    assert_eq!((info.fired, info.last_state), (1, Some(JobState::Running)));
    let overlapped = loop {
        if let Event::Overlapped { id, schedule, due, .. } = next(&mut events).await {
            break (id.to_string(), schedule, due.duration_since(UNIX_EPOCH).unwrap().as_millis());
        }
    };
    assert_eq!((overlapped.0, overlapped.1.as_str()), (format!("poll@{}", overlapped.2), "poll"));
    test.journal.open("go");
    accounted_for(&becomes(&task, "poll", "the next tick fires", |info| info.fired >= 2).await);
    worker.stop().await;
}

#[tokio::test]
async fn a_queued_tick_fires_when_the_last_job_has_ended() {
    let test = TestTask::new();
    let (app, task) = declared(&test, "poll", Schedule::every(SECOND).overlap(Overlap::Queue)).await;
    let worker = TestWorker::start(app.worker());
    let is_queued = |info: &ScheduleInfo| info.overlapped >= 1 && info.pending.is_some();
    let info = becomes(&task, "poll", "a newer tick takes the place of the first that waits", is_queued).await;
    accounted_for(&info);
    assert_eq!(info.fired, 1);
    assert_eq!(task.counts().await.unwrap().waiting, 0, "a tick that waits has a job");
    test.journal.open("go");
    accounted_for(&becomes(&task, "poll", "the queued tick fires", |info| info.fired >= 2).await);
    worker.stop().await;
}

#[tokio::test]
async fn a_replacing_tick_cancels_the_running_job() {
    let test = TestTask::new();
    let (app, task) = declared(&test, "poll", Schedule::every(SECOND).overlap(Overlap::Replace)).await;
    let worker = TestWorker::start(app.worker());
    let info = becomes(&task, "poll", "a tick replaces a job", |info| info.fired >= 2).await;
    accounted_for(&info);
    let first = test.journal.runs()[0].id.clone();
    match task.handle(&first).unwrap().result_within(PATIENCE).await {
        Err(Error::JobCancelled { reason, .. }) => assert!(reason.contains("tick"), "{reason}"),
        other => panic!("{other:?}"),
    }
    worker.stop().await;
}

#[tokio::test]
async fn ticks_of_a_paused_schedule_are_counted_and_make_no_job() {
    let test = TestTask::new();
    test.journal.open("go");
    let (app, task) = declared(&test, "poll", Schedule::every(SECOND)).await;
    let worker = TestWorker::start(app.worker());
    becomes(&task, "poll", "it is declared", |_| true).await;
    let schedules = task.schedules();
    assert!(schedules.pause("poll", "maintenance").await.unwrap());
    assert!(!schedules.pause("poll", "twice").await.unwrap());
    let fired = schedules.get("poll").await.unwrap().unwrap().fired;
    let info = becomes(&task, "poll", "ticks pass", |info| info.paused_ticks >= 2).await;
    // A tick that was due at the pause may have fired.
    assert!(info.fired <= fired + 1, "{info:?}");
    assert_eq!(info.pause.as_ref().unwrap().reason, "maintenance");
    accounted_for(&info);
    assert!(schedules.resume("poll").await.unwrap());
    assert!(!schedules.resume("poll").await.unwrap());
    accounted_for(&becomes(&task, "poll", "it fires again", |info| info.fired > fired + 1).await);
    worker.stop().await;
    let unknown = schedules.pause("nightly", "").await.unwrap_err().to_string();
    assert!(unknown.contains("nightly") && unknown.contains("must be a schedule"), "{unknown}");
}

#[tokio::test]
async fn jobs_by_hand_are_counted_apart_from_ticks() {
    let (_test, app, task) = producing().await;
    let schedules = task.schedules();
    let placed = schedules.put("poll", Schedule::every(SECOND), "go".to_owned()).await.unwrap();
    assert_eq!((placed.is_new, placed.has_worker), (true, false));
    let tasks = app.inspector().tasks().await.unwrap();
    assert!(tasks.iter().any(|listed| listed.task == task.name()), "a schedule lists its task: {tasks:?}");
    assert!(!schedules.put("poll", Schedule::every(SECOND), "go".to_owned()).await.unwrap().is_new);
    let job = schedules.run_now("poll").await.unwrap();
    assert_eq!(job.state().await.unwrap(), JobState::Waiting);
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(schedules.backfill("poll", at(1_000_000)..at(1_000_010)).await.unwrap(), 10);
    let info = schedules.get("poll").await.unwrap().unwrap();
    assert_eq!((info.by_hand, info.fired, info.last_job.as_ref()), (11, 0, Some(job.id())));
    assert_eq!(task.counts().await.unwrap().waiting, 11);

    let later = SystemTime::now() + Duration::from_secs(3600);
    for (times, field) in [(at(0)..later, "to"), (at(10)..at(10), "from"), (at(0)..at(20_000), "to")] {
        match schedules.backfill("poll", times).await {
            Err(Error::Config(faults)) => assert_eq!(faults.iter().next().unwrap().field, field),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(schedules.list().await.unwrap().len(), 1);
    assert!(schedules.remove("poll").await.unwrap());
    assert!(!schedules.remove("poll").await.unwrap());
    assert_eq!(schedules.get("poll").await.unwrap(), None);
    assert!(matches!(schedules.run_now("poll").await, Err(Error::Config(_))));
}

#[tokio::test]
async fn a_schedule_that_a_producer_writes_is_fired_by_a_worker() {
    let test = TestTask::new();
    test.journal.open("go");
    let worker = test.start_worker(fast()).await;
    let (_app, task) = test.producer().await;
    let schedules = task.schedules();
    let hourly = || Schedule::every(Duration::from_secs(3600));
    let has_worker = async || schedules.put("poll", hourly(), "go".to_owned()).await.unwrap().has_worker;
    eventually("the worker says that it fires ticks", PATIENCE, has_worker).await;
    // Another rule takes effect at once, although the worker knows of no tick within the hour.
    let placed = schedules.put("poll", Schedule::every(SECOND), "go".to_owned()).await.unwrap();
    assert_eq!((placed.is_new, placed.has_worker), (false, true));
    let info = becomes(&task, "poll", "a tick fires", |info| info.fired >= 1).await;
    assert_eq!((info.source, info.by.as_str()), (ScheduleSource::RunTime, "producer"));
    worker.stop().await;
    let stopped = async || !schedules.put("poll", Schedule::every(SECOND), "go".to_owned()).await.unwrap().has_worker;
    eventually("the stopped worker has left", PATIENCE, stopped).await;
}

#[tokio::test]
async fn a_put_goes_to_the_partition_of_the_schedule() {
    let test = TestTask::new();
    // This producer has read that the task has one partition.
    let (_app, task) = test.producer().await;
    assert!(task.schedules().list().await.unwrap().is_empty());
    let app = test.app().await;
    let named = app.task_ref_for(&TaskDef::<String, u64>::new(TASK).options(fast().partitions(3))).unwrap();
    let hourly = || Schedule::every(Duration::from_secs(3600));
    named.schedules().put("first", hourly(), "go".to_owned()).await.unwrap();
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        assert!(task.schedules().put(name, hourly(), "go".to_owned()).await.unwrap().is_new);
    }
    for name in names {
        assert!(named.schedules().get(name).await.unwrap().is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_rule_of_run_time_takes_precedence_over_code() {
    let test = TestTask::new();
    test.journal.open("go");
    let (_app, task) = test.producer().await;
    let hourly = Schedule::every(Duration::from_secs(3600));
    task.schedules().put("poll", hourly, "go".to_owned()).await.unwrap();
    let (app, own) = declared(&test, "poll", Schedule::every(SECOND)).await;
    own.schedule("mark", Schedule::every(SECOND), "go".to_owned()).unwrap();
    let worker = TestWorker::start(app.worker());
    becomes(&task, "mark", "the other schedule fires", |info| info.fired >= 1).await;
    let info = task.schedules().get("poll").await.unwrap().unwrap();
    assert_eq!((info.source, info.rule.as_str(), info.fired), (ScheduleSource::RunTime, "every 1h", 0));
    worker.stop().await;
}

#[tokio::test]
async fn a_large_input_does_not_keep_others_from_firing() {
    let (test, large) = (TestTask::new(), "x".repeat(600 * 1024));
    let app = test.app().await;
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len() as u64) };
    let task = app.task(TASK, fast(), handler).unwrap();
    let task = task.schedule("large", Schedule::every(SECOND), large.clone()).unwrap();
    let task = task.schedule("small", Schedule::every(SECOND), "go".to_owned()).unwrap();
    let worker = TestWorker::start(app.worker());
    let info = becomes(&task, "large", "it fires", |info| info.fired >= 1).await;
    assert!(info.input_bytes > large.len(), "{info:?}");
    becomes(&task, "small", "it fires too", |info| info.fired >= 1).await;
    let job = task.handle(info.last_job.unwrap()).unwrap();
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), large.len() as u64);
    // A producer writes it over a connection of its own, too.
    let changed = Schedule::every(Duration::from_secs(2));
    assert!(!task.schedules().put("large", changed, large).await.unwrap().is_new);
    worker.stop().await;
}

#[tokio::test]
async fn a_schedule_that_breaks_a_rule_is_refused_with_its_field() {
    let (test, app, named) = producing().await;
    let refused = |declared: Result<TaskRef<String, u64>, Error>| match declared {
        Err(Error::Config(faults)) => {
            faults.iter().map(|fault| (fault.field.clone(), fault.value.clone())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let put = |task: &TaskRef<String, u64>, name: &str, schedule: Schedule| {
        refused(task.clone().schedule(name, schedule, "go".to_owned()))
    };
    let hourly = || Schedule::every(Duration::from_secs(3600));
    // The handler is in another App.
    assert_eq!(put(&named, "nightly", hourly())[0].0, "task");
    let own = test.app().await;
    let task = test.declare_at(&own, fast());
    let both = put(&task, "no name", Schedule::every(Duration::ZERO));
    assert!(both.len() >= 2 && both[0].0 == "schedule", "{both:?}");
    let task = task.schedule("nightly", hourly(), "go".to_owned()).unwrap();
    assert_eq!(put(&task, "nightly", hourly()), [("schedule".to_owned(), "nightly".to_owned())]);
    let _worker = own.worker();
    assert_eq!(put(&task, "later", hourly())[0].0, "task");
    let refused = named.schedules().put("no name", hourly(), "go".to_owned()).await.unwrap_err().to_string();
    assert!(refused.contains("no name"), "{refused}");
    drop(app);
}

#[tokio::test]
async fn a_tick_can_be_fired_in_a_test() {
    let app = TestApp::start().await.unwrap();
    let handler = |ctx: Context, kind: String| async move {
        let due = ctx.tick().map(|tick| tick.due.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        Ok::<_, JobError>(format!("{kind} {}", due.unwrap_or(0)))
    };
    let nightly = Schedule::cron("30 2 * * *").unwrap().tz("Europe/Berlin").unwrap();
    let report: TaskRef<String, String> = app.task("report", TaskOptions::new(), handler).unwrap();
    let report = report.schedule("nightly", nightly, "daily".to_owned()).unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let job = app.fire(&report, "nightly", at).await.unwrap();
    assert_eq!(job.id().as_str(), "nightly@1700000000000");
    app.worker().drain().await.unwrap();
    assert_eq!(job.result().await.unwrap(), "daily 1700000000");
    assert!(app.fire(&report, "weekly", at).await.is_err());
    let test = Context::for_test().tick("nightly", at, Some(at - SECOND));
    let ctx = test.context();
    assert_eq!(ctx.tick().map(|tick| (tick.schedule.as_str(), tick.previous)), Some(("nightly", Some(at - SECOND))));
    assert_eq!(Context::for_test().context().tick(), None);
}
