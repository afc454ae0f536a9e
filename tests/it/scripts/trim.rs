use crate::scripts::call::{COLUMNS, Task, assert_keys, assert_rest, without};

/// Terminal jobs `old-1` ... `old-n` of 1970, and `young` of now, with every column.
async fn ended(place: &str, old: usize) -> Task {
    let mut task = Task::new().await;
    let now = task.now_ms().await;
    task.write(&format!("{place} young={now}; payload young=1")).await;
    task.columns(COLUMNS, &["young"]).await;
    for id in (1..=old).map(|number| format!("old-{number}")) {
        task.write(&format!("{place} {id}={}; payload {id}=1", &id[4..])).await;
        task.columns(COLUMNS, &[&id]).await;
    }
    task
}

/// Arguments of the worker `w`, with a least age of a minute.
const ARGS: &str = "w Completed 60000 200";

#[tokio::test]
async fn old_jobs_are_removed_from_each_set_with_every_column() {
    for (place, name) in [("completed", "Completed"), ("failed", "Failed"), ("cancelled", "Cancelled")] {
        let mut task = ended(place, 2).await;
        task.write(&format!("meta maxAge{name}=60000, maxCount{name}=")).await;
        assert_eq!(task.ok_at(place, "trim", &format!("w {name} 60000 200")).await, "[trimmed 2 0]");
        let left = without(task.keys().await, &["meta", "events"]);
        assert_eq!(left.len(), 2 + COLUMNS.split(' ').count(), "{left:?}");
        assert!(left.iter().all(|line| line.contains("young") && !line.contains("old")), "{left:?}");
        assert_keys!(task, "events {removed=old-1 old-2, total=2, worker=w}");
    }
}

#[tokio::test]
async fn each_set_has_its_own_limits_and_none_without_one() {
    let mut task = ended("completed", 2).await;
    task.write("meta keepFailed=0, maxAgeFailed=60000, maxCountCancelled=0").await;
    task.write("meta keepCompleted=1, maxAgeCompleted=, maxCountCompleted=").await;
    assert_eq!(task.unchanged("trim", ARGS).await, "[trimmed 0 0]");
}

#[tokio::test]
async fn jobs_past_the_count_are_removed_oldest_first() {
    let mut task = ended("completed", 4).await;
    task.write("meta maxCountCompleted=3").await;
    assert_eq!(task.ok("trim", ARGS).await, "[trimmed 2 0]");
    assert_keys!(task, "completed old-3=3, old-4=4, young=NOW");
}

#[tokio::test]
async fn no_bound_removes_jobs_younger_than_the_least_age() {
    let mut task = ended("completed", 1).await;
    task.write("meta maxAgeCompleted=0, maxCountCompleted=0").await;
    assert_eq!(task.ok("trim", ARGS).await, "[trimmed 1 0]");
    assert_keys!(task, "completed young=NOW");
    assert_eq!(task.unchanged("trim", ARGS).await, "[trimmed 0 0]");
}

#[tokio::test]
async fn a_task_that_keeps_nothing_drops_old_jobs_of_any_age() {
    let mut task = ended("completed", 1).await;
    task.write("meta keepCompleted=0, maxAgeCompleted=, maxCountCompleted=").await;
    assert_eq!(task.ok("trim", ARGS).await, "[trimmed 2 0]");
    assert_rest!(task, "meta, events", "");
}

#[tokio::test]
async fn one_call_removes_at_most_its_limit_and_reports_more() {
    let mut task = ended("completed", 6).await;
    task.write("meta maxAgeCompleted=60000").await;
    for (removed, more) in [(2, 1), (2, 1), (2, 1), (0, 0)] {
        assert_eq!(task.ok("trim", "w Completed 60000 2").await, format!("[trimmed {removed} {more}]"));
    }
    let mut task = ended("completed", 3).await;
    task.write("meta maxAgeCompleted=60000").await;
    for (removed, more) in [(2, 1), (1, 0)] {
        assert_eq!(task.ok("trim", "w Completed 60000 2").await, format!("[trimmed {removed} {more}]"));
    }
}

#[tokio::test]
async fn one_call_removes_at_most_512_kib_after_the_first_job() {
    const KIB: usize = 1024;
    let mut task = ended("completed", 6).await;
    task.write("meta maxAgeCompleted=60000").await;
    // Payload and result together: 3 MiB; exactly 512 KiB in two jobs; a byte more.
    for (id, payload, result) in [
        ("old-1", 2048 * KIB, 1024 * KIB),
        ("old-2", 200 * KIB, 56 * KIB),
        ("old-3", 1, 256 * KIB - 1),
        ("old-4", 256 * KIB, 1),
        ("old-5", 256 * KIB, 0),
        ("old-6", 0, 513 * KIB),
    ] {
        task.hset("payload", &[(id, &"x".repeat(payload))]).await;
        task.hset("result", &[(id, &"x".repeat(result))]).await;
    }
    for (removed, more, first) in [(1, 1, "old-2"), (2, 1, "old-4"), (1, 1, "old-5"), (1, 1, "old-6"), (1, 0, "young")]
    {
        assert_eq!(task.ok("trim", ARGS).await, format!("[trimmed {removed} {more}]"));
        assert!(task.held("completed").await.starts_with(&format!(r#"zset ["{first}":"#)), "{first} is next");
    }
}

#[tokio::test]
async fn without_declared_options_nothing_is_removed() {
    let mut task = ended("completed", 2).await;
    task.write("meta maxAgeCompleted=60000, keepCompleted=0").await;
    task.lose_options().await;
    assert_eq!(task.unchanged("trim", ARGS).await, "[undeclared]");
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = ended("completed", 1).await;
    task.write("meta eventMode=off, maxAgeCompleted=60000").await;
    assert_eq!(task.ok("trim", ARGS).await, "[trimmed 1 0]");
    assert_keys!(task, "no events");
}

#[tokio::test]
async fn an_empty_set_is_not_an_error() {
    let mut task = Task::with("meta maxAgeCompleted=60000, maxCountCompleted=10").await;
    assert_eq!(task.unchanged("trim", ARGS).await, "[trimmed 0 0]");
}

#[tokio::test]
async fn an_unrecorded_node_stays_until_its_workflow_has_recorded_it() {
    for limits in
        [[("keepCompleted", "0"), ("maxAgeCompleted", "")], [("keepCompleted", "1"), ("maxAgeCompleted", "0")]]
    {
        let mut task = ended("completed", 2).await;
        task.hset("meta", &limits).await;
        task.write("completed ~f/a/0/1=1, ~f/a/1/1=1; payload ~f/a/0/1={}, ~f/a/1/1={}").await;
        // A job without a workflow is removed although it is in the outbox.
        task.write("outbox ~f/a/0/1=1, old-1=1").await;
        task.ok("trim", ARGS).await;
        let left = task.held("completed").await;
        assert!(left.contains("~f/a/0/1") && !left.contains("old") && !left.contains("~f/a/1/1"), "{left}");
        assert!(task.held("payload").await.contains("~f/a/0/1"));
        assert_eq!(task.ok("trim", ARGS).await, "[trimmed 0 0]");
        task.write("no outbox").await;
        assert_eq!(task.ok("trim", ARGS).await, "[trimmed 1 0]");
        assert!(!task.held("payload").await.contains("~f/a/0/1"));
    }
}

#[tokio::test]
async fn a_call_that_left_some_nodes_also_reports_more() {
    let mut task = ended("completed", 4).await;
    task.write("meta maxAgeCompleted=60000; completed ~f/a/0/1=1.5; outbox ~f/a/0/1=1").await;
    for (removed, more) in [(2, 1), (2, 1), (0, 0)] {
        assert_eq!(task.ok("trim", "w Completed 60000 3").await, format!("[trimmed {removed} {more}]"));
    }
    assert_keys!(task, "completed ~f/a/0/1=1.5, young=NOW");
}
