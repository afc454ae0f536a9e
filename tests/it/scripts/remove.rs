use crate::scripts::call::{Task, without};

const COLUMNS: [&str; 15] = [
    "payload",
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
];

#[tokio::test]
async fn a_job_is_removed_from_any_place_with_every_column() {
    for place in ["delayed", "completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        for id in ["a", "other"] {
            task.zadd(place, 5.0, id).await;
            for column in COLUMNS {
                task.hset(column, &[(id, "1")]).await;
            }
        }
        assert_eq!(task.ok("remove", &["anna", "a", ""]).await, "[told removed]");
        let left = without(task.keys().await, &["meta", "events"]);
        assert_eq!(left.len(), 1 + COLUMNS.len(), "{left:?}");
        assert!(left.iter().all(|line| line.contains("other") && !line.contains("\"a\"")), "{left:?}");
        let entry = r#"stream [NOW {"by": "anna", "removed": "a", "total": "1", "worker": ""}]"#;
        assert_eq!(task.held("events").await, entry);
        assert_eq!(task.held("meta").await, r#"hash {"events": "1", "fence": "4000000000000000"}"#);
    }
}

#[tokio::test]
async fn a_removed_waiting_job_leaves_a_tombstone() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "c"]).await;
    task.hset("attempt", &[("b", "1")]).await;
    assert_eq!(task.ok("remove", &["", "b", ""]).await, "[told removed]");
    assert_eq!(
        task.keys().await,
        [
            r#"events stream [NOW {"removed": "b", "total": "1", "worker": ""}]"#,
            r#"meta hash {"events": "1", "fence": "4000000000000000", "tombstones": "1"}"#,
            r#"payload hash {"a": "{}", "c": "{}"}"#,
            r#"tombstones hash {"b": "1"}"#,
            r#"wait list ["a", "b", "c"]"#,
        ]
    );
}

#[tokio::test]
async fn removing_the_first_job_also_removes_the_tombstones_after_it() {
    for list in ["wait:high", "wait", "wait:low"] {
        let mut task = Task::new().await;
        task.hset("payload", &[("a", "1"), ("b", "1"), ("c", "1")]).await;
        task.rpush(list, &["a", "b", "c"]).await;
        task.ok("remove", &["", "b", ""]).await;
        assert_eq!(task.list(list).await, ["a", "b", "c"]);
        task.ok("remove", &["", "a", ""]).await;
        assert_eq!(task.list(list).await, ["c"]);
        assert_eq!(task.held("tombstones").await, "");
        assert_eq!(task.field("meta", "tombstones").await, "0");
    }
}

#[tokio::test]
async fn many_jobs_are_returned_in_order_and_share_one_event() {
    let mut task = Task::new().await;
    task.waiting(&["first", "w-1", "w-2"]).await;
    task.running("w", &[("run", 7)]).await;
    task.hset("payload", &[("late", "1"), ("old", "1"), ("bad", "1")]).await;
    task.zadd("delayed", 9e12, "late").await;
    task.zadd("completed", 1.0, "old").await;
    task.zadd("failed", 1.0, "bad").await;
    let args = ["", "w-2", "", "run", "", "nobody", "", "late", "", "old", "", "w-1", "", "bad", ""];
    let told = task.ok("remove", &args).await;
    assert_eq!(told, "[told removed running unknown removed removed removed removed]");
    assert_eq!(
        task.keys().await,
        [
            r#"active set {"run"}"#,
            r#"events stream [NOW {"removed": "w-2 late old w-1 bad", "total": "5", "worker": ""}]"#,
            r#"locks hash {"run": "w:7"}"#,
            r#"meta hash {"events": "5", "fence": "4000000000000000", "tombstones": "2"}"#,
            r#"payload hash {"first": "{}", "run": "{}"}"#,
            r#"tombstones hash {"w-1": "1", "w-2": "1"}"#,
            r#"wait list ["first", "w-1", "w-2"]"#,
        ]
    );
}

#[tokio::test]
async fn a_cancelled_job_whose_entry_is_still_there_is_one_tombstone() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    task.ok("cancel", &["why", "channel", "", "a", ""]).await;
    assert_eq!(task.ok("remove", &["", "a", ""]).await, "[told removed]");
    assert_eq!(task.held("tombstones").await, r#"hash {"a": "1"}"#);
    assert_eq!(task.field("meta", "tombstones").await, "1");
    assert_eq!(task.held("cancelled").await, "");
    assert_eq!(task.held("error").await, "");
}

#[tokio::test]
async fn a_held_job_is_kept_and_nothing_is_written() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    let before = task.exact().await;
    assert_eq!(task.ok("remove", &["", "a", "w:7", "nobody", ""]).await, "[told running unknown]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = Task::new().await;
    task.waiting(&["waiting"]).await;
    task.running("w", &[("running", 7)]).await;
    task.hset("payload", &[("failed", "1")]).await;
    task.zadd("failed", 5.0, "failed").await;
    let before = task.exact().await;
    let args = ["", "waiting", "5", "running", "w:6", "failed", "6", "nobody", "5"];
    assert_eq!(task.ok("remove", &args).await, "[told changed changed changed unknown]");
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("remove", &["", "failed", "5"]).await, "[told removed]");
}

#[tokio::test]
async fn a_repeated_remove_changes_nothing_and_ids_count_once() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    assert_eq!(task.ok("remove", &["", "a", "", "a", ""]).await, "[told removed changed]");
    assert_eq!(task.field("meta", "tombstones").await, "1");
    let before = task.exact().await;
    assert_eq!(task.ok("remove", &["", "a", ""]).await, "[told unknown]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::new().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    task.waiting(&["a"]).await;
    assert_eq!(task.ok("remove", &["anna", "a", ""]).await, "[told removed]");
    assert_eq!(without(task.keys().await, &["meta"]), [] as [&str; 0]);
}

#[tokio::test]
async fn nothing_is_removed_if_meta_has_another_type() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    task.make_foreign("meta").await;
    let before = task.exact().await;
    assert_eq!(task.refused("remove", &["", "a", ""]).await, "WRONGTYPE");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn one_call_removes_at_most_512_kib_and_a_larger_job_alone() {
    let mut task = Task::new().await;
    let half = "x".repeat(300 << 10);
    for id in ["a", "b", "c"] {
        task.zadd("completed", 5.0, id).await;
        task.hset("payload", &[(id, "1")]).await;
        task.hset("result", &[(id, &half)]).await;
    }
    task.hset("payload", &[("huge", &half.repeat(3))]).await;
    task.rpush("wait", &["huge"]).await;
    let args = ["", "huge", "", "a", "", "b", "", "running", "", "c", ""];
    assert_eq!(task.ok("remove", &args).await, "[told removed left left unknown left]");
    assert_eq!(task.ok("remove", &["", "a", "", "b", "", "c", ""]).await, "[told removed left left]");
    assert_eq!(task.ok("remove", &["", "b", "", "c", ""]).await, "[told removed left]");
    assert_eq!(task.ok("remove", &["", "c", ""]).await, "[told removed]");
    assert_eq!(task.held("payload").await, "");
}

#[tokio::test]
async fn a_job_that_is_named_with_its_state_is_removed_only_in_that() {
    for (place, state) in
        [("delayed", "delayed"), ("completed", "completed"), ("failed", "failed"), ("wait", "waiting")]
    {
        let mut task = Task::new().await;
        if place == "wait" {
            task.waiting(&["a"]).await;
        } else {
            task.hset("payload", &[("a", "{}")]).await;
            task.zadd(place, 5.0, "a").await;
        }
        let before = task.exact().await;
        assert_eq!(task.ok("remove", &["", "a", "=cancelled"]).await, "[told changed]");
        assert_eq!(task.ok("remove", &["", "none", "=cancelled"]).await, "[told unknown]");
        assert_eq!(task.exact().await, before);
        assert_eq!(task.ok("remove", &["", "a", &format!("={state}")]).await, "[told removed]");
    }
}

#[tokio::test]
async fn removing_the_last_failed_job_caps_the_count_of_failing_jobs() {
    // The jobs that are left may be retries; the count never grows.
    for (by, counted, left) in [("ada", "26", "4"), ("", "26", "26"), ("ada", "3", "3")] {
        let mut task = Task::new().await;
        task.hset("meta", &[("failedSinceCompleted", counted)]).await;
        for id in ["old", "other"] {
            task.hset("payload", &[(id, "1")]).await;
            task.zadd("failed", 5.0, id).await;
        }
        task.waiting(&["one", "two"]).await;
        task.running("w", &[("runs", 7)]).await;
        task.zadd("delayed", 9e12, "later").await;
        task.ok("remove", &["ada", "old", ""]).await;
        assert_eq!(task.field("meta", "failedSinceCompleted").await, counted, "one is left");
        task.ok("remove", &[by, "other", ""]).await;
        assert_eq!(task.field("meta", "failedSinceCompleted").await, left, "by {by:?}");
    }
}
