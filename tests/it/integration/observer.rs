//! What the observer of a worker gets: each run of that worker, once, however it ended.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{CallInfo, Context, Event, JobError, Observer, RetryPolicy, RunEnd, RunInfo, RunOutcome, TaskRef};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Heard {
    fn note(&self, run: &RunInfo<'_>, what: String) {
        self.0.lock().unwrap().entry(run.id.to_string()).or_default().push(what);
    }

    fn of(&self, id: &str) -> Vec<String> {
        self.0.lock().unwrap().get(id).cloned().unwrap_or_default()
    }
}

impl Observer for Heard {
    fn started(&self, run: &RunInfo<'_>) {
        assert_eq!(run.task, TASK);
        self.note(run, format!("started {}/{}", run.attempt, run.max_attempts));
        if run.id.as_str() == "observer" {
            panic!("an observer that panics");
        }
    }

    fn ended(&self, run: &RunInfo<'_>, end: &RunEnd<'_>) {
        if end.outcome == RunOutcome::Completed {
            assert!(end.ran >= Duration::from_millis(10), "{:?}", end.ran);
        }
        let code = end.code.map(|code| format!(" {code}: {}", end.message.unwrap())).unwrap_or_default();
        self.note(run, format!("{}{code}", end.outcome));
    }
}

#[tokio::test]
async fn an_observer_gets_each_run_once_with_its_outcome() {
    let test = TestTask::new();
    let (app, other) = (test.app().await, test.app().await);
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1));
    let declare = |app: &heartline::App| -> TaskRef<String, ()> {
        app.task(TASK, fast().retry(retry.clone()), |ctx: Context, what: String| async move {
            match what.as_str() {
                "fails" => Err(JobError::new("no").with_code("broke")),
                "snoozes" if ctx.snoozed_count() == 0 => Err(JobError::snooze(Duration::from_millis(1))),
                "times-out" => std::future::pending().await,
                "waits" => {
                    ctx.cancelled().await;
                    Err("told to stop".into())
                }
                _ => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok(())
                }
            }
        })
        .unwrap()
    };
    let task = declare(&app);
    declare(&other);
    let (heard, deaf) = (Heard::default(), Heard::default());
    let worker = TestWorker::start(app.worker().observe(heard.clone()));
    for id in ["completes", "fails", "snoozes", "observer"] {
        task.dispatch(id.to_owned()).id(id).await.unwrap();
    }
    task.dispatch("times-out".to_owned()).id("times-out").attempts(1).timeout(Duration::from_millis(20)).await.unwrap();
    for id in ["completes", "fails", "snoozes", "observer", "times-out"] {
        let _ = tokio::time::timeout(PATIENCE, task.handle(id).unwrap().result()).await.unwrap();
    }
    assert_eq!(heard.of("completes"), ["started 1/2", "completed"]);
    assert_eq!(heard.of("fails"), ["started 1/2", "retrying broke: no", "started 2/2", "failed broke: no"]);
    assert_eq!(heard.of("snoozes"), ["started 1/2", "snoozed", "started 1/2", "completed"]);
    assert_eq!(heard.of("observer"), ["started 1/2", "completed"], "its panic changes nothing");
    let timed_out = heard.of("times-out");
    assert!(timed_out.len() == 2 && timed_out[1].starts_with("failed timeout: "), "{timed_out:?}");

    task.dispatch("waits".to_owned()).id("waits").await.unwrap();
    eventually("it runs", PATIENCE, async || heard.of("waits").len() == 1).await;
    worker.stop().await;
    assert_eq!(heard.of("waits"), ["started 1/2", "interrupted"]);
    // Runs of another worker go to the observer of that worker.
    let worker = TestWorker::start(other.worker().observe(deaf.clone()));
    eventually("it runs there", PATIENCE, async || deaf.of("waits").len() == 1).await;
    worker.stop().await;
    assert_eq!(heard.of("waits").len(), 2);
}

/// The wait of each run, by job.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<BTreeMap<String, Vec<Option<Duration>>>>>);

impl Observer for Waits {
    fn started(&self, run: &RunInfo<'_>) {
        self.0.lock().unwrap().entry(run.id.to_string()).or_default().push(run.waited);
    }
}

#[tokio::test]
async fn observer_and_events_report_the_wait_and_the_run_time() {
    const MS: Duration = Duration::from_millis(1);
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast(), |ctx: Context, what: String| async move {
            tokio::time::sleep(20 * MS).await;
            match what.as_str() {
                "snoozes" if ctx.snoozed_count() == 0 => Err(JobError::snooze(MS)),
                "fails" => Err(JobError::new("no").fatal()),
                _ => Ok(()),
            }
        })
        .unwrap();
    let mut events = app.events();
    let began = Instant::now();
    let delayed = task.dispatch("delayed".to_owned()).delay(400 * MS).await.unwrap();
    let plain = task.dispatch("plain".to_owned()).await.unwrap();
    for id in ["mine", "snoozes", "fails"] {
        task.dispatch(id.to_owned()).id(id).await.unwrap();
    }
    task.dispatch("mine".to_owned()).id("mine-delayed").delay(400 * MS).await.unwrap();
    tokio::time::sleep(50 * MS).await;
    let waits = Waits::default();
    let worker = TestWorker::start(app.worker().observe(waits.clone()));
    let (mut told, mut ran, mut ended) = (BTreeMap::new(), BTreeMap::new(), 0);
    while ended < 6 {
        let event = next(&mut events).await;
        ended += usize::from(event.is_terminal());
        match event {
            Event::Started { id, waited, .. } => told.entry(id.to_string()).or_insert_with(Vec::new).push(waited),
            Event::Completed { id, ran: so_long, .. } => drop(ran.insert(id.to_string(), Some(so_long))),
            Event::Failed { id, ran: so_long, .. } => drop(ran.insert(id.to_string(), so_long)),
            _ => {}
        }
    }
    let took = began.elapsed();
    worker.stop().await;
    let heard = waits.0.lock().unwrap().clone();
    // Each clock is read to the millisecond.
    for waited in [&told, &heard] {
        for id in [plain.id().as_str(), "mine", "fails"] {
            let [Some(waited)] = waited[id][..] else { panic!("{waited:?}") };
            assert!((48 * MS..=took).contains(&waited), "{id}: {waited:?} of {took:?}");
        }
        for id in [delayed.id().as_str(), "mine-delayed"] {
            let [Some(waited)] = waited[id][..] else { panic!("{waited:?}") };
            assert!(waited + 400 * MS <= took + 2 * MS, "{id}: {waited:?} of {took:?}");
        }
        let [Some(_), None] = waited["snoozes"][..] else { panic!("{waited:?}") };
    }
    assert_eq!(ran.len(), 6);
    assert!(ran.values().all(|ran| ran.is_some_and(|ran| (20 * MS..took).contains(&ran))), "{ran:?}");
}

/// Adds up the calls of its worker.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<(usize, usize)>>);

impl Observer for Calls {
    fn called(&self, call: &CallInfo) {
        assert_eq!(&*call.task, TASK);
        let mut sums = self.0.lock().unwrap();
        *sums = (sums.0 + call.reported, sums.1 + call.claimed);
        drop(sums);
        panic!("an observer that panics");
    }
}

#[tokio::test]
async fn every_observer_gets_runs_claims_and_reports() {
    let (test, app) = shared().await;
    let task = app.task(&test.name, fast(), |_: Context, n: u64| async move { Ok::<_, JobError>(n) }).unwrap();
    let (one, other) = (Calls::default(), Calls::default());
    let worker = TestWorker::start(app.worker().observe(one.clone()).observe(other.clone()));
    for job in task.dispatch_many(0..300).await.unwrap() {
        job.result().await.unwrap();
    }
    for calls in [one, other] {
        let told = async || *calls.0.lock().unwrap() == (300, 300);
        eventually("all of them are observed", PATIENCE, told).await;
    }
    worker.stop().await;
}
