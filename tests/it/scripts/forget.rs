use crate::scripts::call::{COLUMNS, Task, assert_text};
use crate::scripts::schedules::row;

/// A task that ran jobs and has none left, with a value under every key that outlives jobs.
async fn done() -> Task {
    let mut task = Task::new().await;
    task.ok("dispatch", "1 1 - a 1").await;
    task.ok("settle", "1 w 1000 1 0 0").await;
    task.write("meta keepCompleted=0").await;
    assert_text!(task.ok("settle", "2 w 1000 1 1 0 a 4000000000000001").await, starts_with("[settled '' '' "));
    task
}

#[tokio::test]
async fn nothing_is_left_of_a_task_without_jobs() {
    let mut task = done().await;
    let keys = task.exact().await.len();
    assert_eq!(keys, 4, "calls, events, meta, wake");
    assert_eq!(task.ok("forget", "").await, format!("[forgotten {keys}]"));
    assert!(task.exact().await.is_empty());
    assert_eq!(task.ok("forget", "").await, "[forgotten 0]");
}

#[tokio::test]
async fn leftovers_of_a_fault_in_job_keys_are_removed_too() {
    let mut task = done().await;
    task.columns(COLUMNS, &["orphan"]).await;
    task.columns("cancelling claimed tombstones", &["orphan"]).await;
    task.write("active orphan; candidates orphan").await;
    assert!(task.ok("forget", "").await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn schedules_are_removed_with_their_task() {
    let mut task = done().await;
    row(&mut task, "a", 15).await;
    task.columns("schedules:paused schedules:ticks schedules:differ", &["a"]).await;
    for key in ["schedules:pending", "schedules:keepers", "schedules:named", "schedules:gone"] {
        task.zadd(key, 1.0, "a").await;
    }
    assert!(task.ok("forget", "").await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn tombstones_do_not_block_a_forget() {
    let mut task = Task::with("waits first a b").await;
    for id in ["b", "a"] {
        task.ok("remove", &["", id, ""]).await;
    }
    assert_text!(task.ok("settle", "1 w 1000 1 0 0").await, contains(" first ["));
    assert_eq!(task.ok("forget", "").await, "[jobs 1]");
    task.write("meta keepCompleted=0").await;
    task.ok("settle", "2 w 1000 0 1 0 first 4000000000000001").await;
    // They were already removed: restored without a script.
    task.write("wait a b; tombstones a=1, b=1; meta tombstones=2").await;
    assert!(task.ok("forget", "").await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn a_job_in_any_state_keeps_the_whole_task() {
    let ended = ["delayed", "completed", "failed", "cancelled"].map(|place| format!("payload x=1; {place} x=1"));
    for job in ended.iter().map(String::as_str).chain(["waits x", "runs w: x=7"]) {
        let mut task = done().await;
        task.write(job).await;
        assert_eq!(task.unchanged("forget", "").await, "[jobs 1]", "{job}");
    }
}

#[tokio::test]
async fn a_job_without_payload_and_a_lone_payload_keep_the_task() {
    // A list entry alone is not a job, and the count of tombstones may be wrong.
    for place in ["wait", "wait:high", "wait:low"] {
        let mut task = Task::new().await;
        task.rpush(place, &["x"]).await;
        assert_eq!(task.ok("forget", "").await, "[forgotten 2]", "{place}");
    }
    for place in ["delayed", "completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        task.zadd(place, 1.0, "x").await;
        assert_eq!(task.ok("forget", "").await, "[jobs 1]", "{place}");
    }
    let mut task = Task::with("locks x=w:7").await;
    assert_eq!(task.ok("forget", "").await, "[jobs 1]");
    let mut task = Task::with("payload x=1, y=1").await;
    assert_eq!(task.ok("forget", "").await, "[jobs 2]");
}
