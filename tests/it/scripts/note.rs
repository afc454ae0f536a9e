//! The notes of handlers about their jobs.

use crate::scripts::call::{Task, assert_keys};

async fn task() -> Task {
    Task::with("runs w: a=7, b=8").await
}

#[tokio::test]
async fn the_holder_writes_both_and_only_progress_has_an_event() {
    let mut task = task().await;
    assert_eq!(task.ok("note", "w a 7 1 {1} p p b 8 4 - q q").await, "[noted []]");
    assert_keys!(task, "checkpoint a=7 1 NOW {1}; progress a=7 1 NOW p, b=8 4 NOW q");
    assert_keys!(task, "events {progress=a p b q, total=2, worker=w}");
    task.ok("note", "w b 8 5 {2} - -").await;
    assert_keys!(task, "events {progress=a p b q, total=2, worker=w}", "a checkpoint has no event");
}

#[tokio::test]
async fn a_worker_that_does_not_hold_the_job_writes_nothing() {
    let mut task = task().await;
    for (said, fence) in [("x a 7", "7"), ("w a 6", "6"), ("w absent 7", "7")] {
        let reply = task.unchanged("note", &format!("{said} 1 {{1}} p p")).await;
        assert_eq!(reply, format!("[noted [{fence}]]"), "{said}");
    }
    assert_eq!(task.unchanged("note", "w").await, "[noted []]");
    assert_eq!(task.ok("note", "w a 6 1 {1} - - b 8 1 {2} - -").await, "[noted [6]]");
    assert_keys!(task, "checkpoint b=8 1 NOW {2}");
}

#[tokio::test]
async fn a_late_note_does_not_overwrite_a_later_one_of_its_run() {
    let mut task = task().await;
    task.ok("note", "w a 7 10 {new} - -").await;
    for number in ["9", "10"] {
        assert_eq!(task.ok("note", &format!("w a 7 {number} {{old}} early early")).await, "[noted []]");
    }
    assert_keys!(task, "checkpoint a=7 10 NOW {new}");
    // Each of the two separately.
    assert_keys!(task, "progress a=7 10 NOW early");
    // A number of an earlier run has no effect.
    task.write("locks a=w:12").await;
    task.ok("note", "w a 12 1 {next} - -").await;
    assert_keys!(task, "checkpoint a=12 1 NOW {next}");
}

#[tokio::test]
async fn without_events_progress_is_stored_and_not_reported() {
    let mut task = task().await;
    task.write("meta eventMode=off").await;
    task.ok("note", "w a 7 1 - p p").await;
    assert_keys!(task, "progress a=7 1 NOW p; no events");
}

#[tokio::test]
async fn a_completed_job_drops_its_checkpoint_and_others_keep_it() {
    let mut task = task().await;
    task.ok("note", "w a 7 1 {1} p p b 8 1 {2} q q").await;
    task.ok("settle", "1 w 1000 0 '1 5' 0 a 7 b 8 failed 1 'e why 5' {}").await;
    assert_keys!(task, "checkpoint b=8 1 NOW {2}; progress a=7 1 NOW p, b=8 1 NOW q");
    task.ok("retry", "- 0 b -").await;
    assert_keys!(task, "checkpoint b=8 1 NOW {2}; progress a=7 1 NOW p");
    task.ok("remove", "- a - b -").await;
    assert_keys!(task, "no checkpoint, progress");
}

#[tokio::test]
async fn a_task_that_keeps_nothing_keeps_no_note() {
    let mut task = task().await;
    task.write("meta keepCompleted=0, keepFailed=0").await;
    task.ok("note", "w a 7 1 {1} p p b 8 1 {2} q q").await;
    task.ok("settle", "1 w 1000 0 '1 5' 0 a 7 b 8 failed 1 'e why 5' {}").await;
    assert_keys!(task, "no checkpoint, progress");
}
