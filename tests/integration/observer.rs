//! What a worker's observer hears: each run of that worker, once, however it ended.

use crate::fixture::*;
use crate::support::{PATIENCE, eventually};
use heartline::{Context, JobError, Observer, RetryPolicy, RunEnd, RunInfo, RunOutcome, TaskRef};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
async fn each_run_of_the_worker_is_told_once_with_its_end() {
    let f = Fixture::new().await;
    let (app, other) = (f.app().await, f.app().await);
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
    let worker = start(app.worker().observe(heard.clone()));
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
    // Another worker's runs are that one's.
    let worker = start(other.worker().observe(deaf.clone()));
    eventually("it runs there", PATIENCE, async || deaf.of("waits").len() == 1).await;
    worker.stop().await;
    assert_eq!(heard.of("waits").len(), 2);
}
