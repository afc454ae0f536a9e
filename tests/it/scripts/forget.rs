use crate::scripts::call::Task;

/// A task that ran jobs and has none left, with a value under every key that outlives jobs.
async fn done() -> Task {
    let mut task = Task::new().await;
    task.ok("dispatch", &["1", "1", "1", "a", "1"]).await;
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    task.hset("meta", &[("keepCompleted", "0")]).await;
    let reply = task.ok("settle", &["2", "w", "1000", "1", "1", "0", "a", "4000000000000001"]).await;
    assert!(reply.starts_with("[settled '' '' "), "{reply}");
    task
}

#[tokio::test]
async fn nothing_is_left_of_a_task_without_jobs() {
    let mut task = done().await;
    let keys = task.exact().await.len();
    assert_eq!(keys, 4, "calls, events, meta, wake");
    assert_eq!(task.ok("forget", &[]).await, format!("[forgotten {keys}]"));
    assert!(task.exact().await.is_empty());
    assert_eq!(task.ok("forget", &[]).await, "[forgotten 0]");
}

#[tokio::test]
async fn leftovers_of_a_fault_in_job_keys_are_removed_too() {
    let mut task = done().await;
    for column in [
        "attempt",
        "stalledCount",
        "result",
        "error",
        "options",
        "maxCount",
        "priority",
        "dispatchedAt",
        "snoozes",
        "enqueuedAt",
        "recovery",
        "expiresAt",
        "checkpoint",
        "progress",
        "cancelling",
        "claimed",
        "tombstones",
    ] {
        task.hset(column, &[("orphan", "1")]).await;
    }
    for set in ["active", "candidates"] {
        task.sadd(set, &["orphan"]).await;
    }
    assert!(task.ok("forget", &[]).await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn tombstones_do_not_block_a_forget() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    for id in ["b", "a"] {
        task.ok("remove", &["", id, ""]).await;
    }
    let reply = task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    assert!(reply.contains(" first ["), "{reply}");
    assert_eq!(task.ok("forget", &[]).await, "[jobs 1]");
    task.hset("meta", &[("keepCompleted", "0")]).await;
    task.ok("settle", &["2", "w", "1000", "0", "1", "0", "first", "4000000000000001"]).await;
    // They were already removed: restored without a script.
    task.rpush("wait", &["a", "b"]).await;
    task.hset("tombstones", &[("a", "1"), ("b", "1")]).await;
    task.hset("meta", &[("tombstones", "2")]).await;
    assert!(task.ok("forget", &[]).await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn a_job_in_any_state_keeps_the_whole_task() {
    for state in ["waiting", "running", "delayed", "completed", "failed", "cancelled"] {
        let mut task = done().await;
        match state {
            "waiting" => task.waiting(&["x"]).await,
            "running" => task.running("w", &[("x", 7)]).await,
            place => {
                task.hset("payload", &[("x", "1")]).await;
                task.zadd(place, 1.0, "x").await;
            }
        }
        let before = task.exact().await;
        assert_eq!(task.ok("forget", &[]).await, "[jobs 1]", "{state}");
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn a_job_without_payload_and_a_lone_payload_keep_the_task() {
    // A list entry alone is not a job, and the count of tombstones may be wrong.
    for place in ["wait", "wait:high", "wait:low"] {
        let mut task = Task::new().await;
        task.rpush(place, &["x"]).await;
        assert_eq!(task.ok("forget", &[]).await, "[forgotten 2]", "{place}");
    }
    for place in ["delayed", "completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        task.zadd(place, 1.0, "x").await;
        assert_eq!(task.ok("forget", &[]).await, "[jobs 1]", "{place}");
    }
    let mut task = Task::new().await;
    task.hset("locks", &[("x", "w:7")]).await;
    assert_eq!(task.ok("forget", &[]).await, "[jobs 1]");
    let mut task = Task::new().await;
    task.hset("payload", &[("x", "1"), ("y", "1")]).await;
    assert_eq!(task.ok("forget", &[]).await, "[jobs 2]");
}
