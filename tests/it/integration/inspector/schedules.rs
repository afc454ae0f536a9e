//! Schedules by name: what the Inspector reports of them, and its acts.

use std::time::{Duration, SystemTime};

use heartline::{App, Error, Inspector, JobState, Schedule, TaskOptions, TickOutcome};

use super::{inspector, observed};
use crate::support::task::{TASK, TestTask};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// A schedule that has no tick during a test.
fn rare() -> Schedule {
    Schedule::every(Duration::from_secs(10 * 365 * 24 * 3600))
}

async fn put(app: &App, name: &str, schedule: Schedule) {
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let _ = task.schedules().put(name, schedule, "x".to_owned()).await.unwrap();
}

/// A task with this schedule and without a worker.
async fn with(name: &str, schedule: Schedule) -> (TestTask, App, Inspector) {
    let (test, app, inspector) = observed().await;
    put(&app, name, schedule).await;
    (test, app, inspector)
}

/// This many minutes after the beginning of 2024.
fn minutes(count: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_704_067_200) + count * MINUTE
}

#[tokio::test]
async fn schedules_are_listed_by_name_with_what_they_do_next() {
    let (_test, app, inspector) = with("nightly", Schedule::cron("30 2 * * *").unwrap()).await;
    assert_eq!(inspector.schedule(TASK, "acme").await.unwrap(), None);
    put(&app, "acme", rare()).await;
    let list = inspector.schedules(TASK).await.unwrap();
    let names: Vec<&str> = list.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!((names, list.more), (vec!["acme", "nightly"], false));
    let nightly = inspector.schedule(TASK, "nightly").await.unwrap().unwrap();
    let next = nightly.next.unwrap();
    assert!(next > nightly.since && next <= nightly.since + 24 * 60 * MINUTE, "{nightly:?}");
    assert_eq!((nightly.fired, nightly.last, nightly.fault), (0, None, None));
    let totals = inspector.schedule_totals(TASK).await.unwrap();
    assert_eq!((totals.schedules, totals.fired, totals.late, totals.keepers), (2, 0, Duration::ZERO, 0));
    assert_eq!(totals.next_at, Some(next));
    let json = serde_json::to_value(&totals).unwrap();
    assert_eq!((&json["task"], &json["late_ms"]), (&TASK.into(), &0.into()), "{json}");
    assert_eq!(inspector.schedule_totals("other").await.unwrap().schedules, 0);
}

#[tokio::test]
async fn more_schedules_than_a_page_are_listed_once_each() {
    let (_test, app, inspector) = observed().await;
    for at in 0..250 {
        put(&app, &format!("s{at:03}"), rare()).await;
    }
    let list = inspector.schedules(TASK).await.unwrap();
    let expected: Vec<String> = (0..250).map(|at| format!("s{at:03}")).collect();
    assert_eq!(list.schedules.into_iter().map(|schedule| schedule.name).collect::<Vec<_>>(), expected);
    assert!(!list.more);
}

#[tokio::test]
async fn the_schedules_of_all_partitions_are_listed_and_counted() {
    let test = TestTask::new();
    let (app, inspector) = inspector(&test).await;
    let options = TaskOptions::new().partitions(3);
    let task = app.task(TASK, options, |_, _: String| async { Ok::<_, heartline::JobError>(1_u64) }).unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("it is declared", PATIENCE, async || inspector.task(TASK).await.unwrap().parts.len() == 3).await;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for name in names {
        let _ = task.schedules().put(name, rare(), "x".to_owned()).await.unwrap();
    }
    let list = inspector.schedules(TASK).await.unwrap().schedules;
    assert_eq!(list.iter().map(|schedule| schedule.name.as_str()).collect::<Vec<_>>(), names);
    assert_eq!(inspector.schedule_totals(TASK).await.unwrap().schedules, 7);
    let keepers = async || inspector.schedule_totals(TASK).await.unwrap().keepers;
    eventually("the worker fires all", PATIENCE, async || keepers().await == 1).await;
    for name in names {
        let id = inspector.run_schedule(TASK, name).await.unwrap().unwrap();
        eventually("its job ran", PATIENCE, async || task.job(&id).await.unwrap().state == JobState::Completed).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_schedule_runs_by_hand_apart_from_its_ticks() {
    let (_test, app, inspector) = with("nightly", rare()).await;
    let id = inspector.run_schedule(TASK, "nightly").await.unwrap().unwrap();
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    assert_eq!(task.job(&id).await.unwrap().state, JobState::Waiting);
    let nightly = inspector.schedule(TASK, "nightly").await.unwrap().unwrap();
    assert_eq!((nightly.by_hand, nightly.fired, nightly.last), (1, 0, None));
    assert_eq!((nightly.last_job, nightly.last_state), (Some(id), Some(JobState::Waiting)));
    assert_eq!(nightly.recent.first().map(|tick| tick.outcome), Some(TickOutcome::ByHand));
    assert_eq!(inspector.run_schedule(TASK, "weekly").await.unwrap(), None);
}

#[tokio::test]
async fn a_pause_keeps_its_first_reason_until_it_is_resumed() {
    let (_test, _app, inspector) = with("nightly", rare()).await;
    let [ada, bob] = ["ada", "bob"].map(|name| inspector.clone().by(name));
    assert_eq!(ada.pause_schedule(TASK, "nightly", "first").await.unwrap(), Some(true));
    assert_eq!(bob.pause_schedule(TASK, "nightly", "second").await.unwrap(), Some(false));
    let pause = inspector.schedule(TASK, "nightly").await.unwrap().unwrap().pause.unwrap();
    assert_eq!((pause.by.as_str(), pause.reason.as_str()), ("ada", "first"));
    assert_eq!(inspector.resume_schedule(TASK, "nightly").await.unwrap(), Some(true));
    assert_eq!(inspector.resume_schedule(TASK, "nightly").await.unwrap(), Some(false));
    assert_eq!(inspector.schedule(TASK, "nightly").await.unwrap().unwrap().pause, None);
    assert_eq!(inspector.pause_schedule(TASK, "weekly", "").await.unwrap(), None);
    assert_eq!(inspector.resume_schedule(TASK, "weekly").await.unwrap(), None);
}

#[tokio::test]
async fn a_backfill_dispatches_what_its_preview_counts() {
    let (_test, app, inspector) = with("often", Schedule::every(MINUTE)).await;
    let range = minutes(0)..minutes(10);
    assert_eq!(inspector.preview_backfill(TASK, "often", range.clone()).await.unwrap(), Some(10));
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    assert_eq!(task.counts().await.unwrap().waiting, 0);
    assert_eq!(inspector.backfill_schedule(TASK, "often", range.clone()).await.unwrap(), Some(10));
    assert_eq!(task.counts().await.unwrap().waiting, 10);
    let often = inspector.schedule(TASK, "often").await.unwrap().unwrap();
    assert_eq!((often.by_hand, often.last_job), (10, None));
    let ahead = minutes(0)..SystemTime::now() + 60 * MINUTE;
    for refused in [ahead, minutes(0)..minutes(20_000), minutes(1)..minutes(1)] {
        let preview = inspector.preview_backfill(TASK, "often", refused.clone()).await;
        assert!(matches!(preview, Err(Error::Config(_))), "{preview:?}");
        let done = inspector.backfill_schedule(TASK, "often", refused).await;
        assert!(matches!(done, Err(Error::Config(_))), "{done:?}");
    }
    assert_eq!(inspector.backfill_schedule(TASK, "weekly", range).await.unwrap(), None);
}

#[tokio::test]
async fn a_removed_schedule_leaves_its_jobs() {
    let (_test, app, inspector) = with("nightly", rare()).await;
    let id = inspector.run_schedule(TASK, "nightly").await.unwrap().unwrap();
    assert!(inspector.remove_schedule(TASK, "nightly").await.unwrap());
    assert!(!inspector.remove_schedule(TASK, "nightly").await.unwrap());
    assert_eq!(inspector.schedule(TASK, "nightly").await.unwrap(), None);
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    assert_eq!(task.job(&id).await.unwrap().state, JobState::Waiting);
    // The name of a task is checked before any call.
    let wrong = inspector.remove_schedule("a b", "nightly").await;
    assert!(matches!(wrong, Err(Error::Config(_))), "{wrong:?}");
}

#[tokio::test]
async fn a_damaged_row_is_reported_with_its_name() {
    let (test, app, inspector) = with("nightly", rare()).await;
    put(&app, "weekly", rare()).await;
    test.run::<u64>("HSET", "schedules:rule", &["nightly", "what"]).await;
    let list = inspector.schedules(TASK).await.unwrap().schedules;
    let faults: Vec<(&str, bool)> = list.iter().map(|row| (row.name.as_str(), row.fault.is_some())).collect();
    assert_eq!(faults, [("nightly", true), ("weekly", false)]);
    let run = inspector.run_schedule(TASK, "nightly").await;
    assert!(matches!(run, Err(Error::Unsupported { .. })), "{run:?}");
    assert!(inspector.remove_schedule(TASK, "nightly").await.unwrap());
}
