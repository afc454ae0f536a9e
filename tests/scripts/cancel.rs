use crate::call::{Task, without};

#[tokio::test]
async fn a_waiting_job_leaves_its_list_and_is_cancelled() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "c"]).await;
    assert_eq!(task.ok("cancel", &["b", "no longer needed", "channel"]).await, "[cancelled]");
    assert_eq!(
        without(task.keys().await, &["error"]),
        [
            r#"cancelled zset ["b": NOW]"#,
            r#"events stream [NOW {"cancelled": "b", "total": "1", "worker": ""}]"#,
            r#"meta hash {"events": "1", "fence": "4000000000000000"}"#,
            r#"payload hash {"a": "{}", "b": "{}", "c": "{}"}"#,
            r#"wait list ["a", "c"]"#,
        ]
    );
    let error: serde_json::Value = serde_json::from_str(&task.field("error", "b").await).unwrap();
    assert_eq!(error, serde_json::json!({"code": "cancelled", "message": "no longer needed"}));
}

#[tokio::test]
async fn a_job_is_taken_out_of_the_list_of_its_own_priority() {
    for (priority, list) in [("high", "wait:high"), ("low", "wait:low"), ("normal", "wait")] {
        let mut task = Task::new().await;
        task.hset("payload", &[("a", "1")]).await;
        task.hset("priority", &[("a", priority)]).await;
        task.rpush(list, &["a"]).await;
        assert_eq!(task.ok("cancel", &["a", "", "channel"]).await, "[cancelled]");
        assert_eq!(task.held(list).await, "", "{priority}");
        assert_eq!(task.held("cancelled").await, r#"zset ["a": NOW]"#);
    }
}

#[tokio::test]
async fn a_delayed_job_is_cancelled_at_once() {
    let mut task = Task::new().await;
    task.hset("payload", &[("a", "1")]).await;
    task.zadd("delayed", 9e12, "a").await;
    assert_eq!(task.ok("cancel", &["a", "why", "channel"]).await, "[cancelled]");
    assert_eq!(task.held("delayed").await, "");
    assert_eq!(task.held("cancelled").await, r#"zset ["a": NOW]"#);
}

#[tokio::test]
async fn a_running_job_is_flagged_and_the_first_reason_stays() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    assert_eq!(task.ok("cancel", &["a", "first", "channel"]).await, "[requested]");
    assert_eq!(task.held("cancelling").await, r#"hash {"a": "first"}"#);
    assert_eq!(task.held("active").await, r#"set {"a"}"#);
    let before = task.exact().await;
    assert_eq!(task.ok("cancel", &["a", "second", "channel"]).await, "[requested]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn the_keeper_of_a_running_job_gets_a_hint() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    let client = redis::Client::open(task.url()).unwrap();
    let mut hints = client.get_async_pubsub().await.unwrap();
    let channel = task.key("cancel");
    hints.subscribe(&channel).await.unwrap();
    let mut hints = hints.into_on_message();
    task.ok("cancel", &["a", "", &channel]).await;
    let hint = tokio::time::timeout(crate::support::PATIENCE, futures_util::StreamExt::next(&mut hints)).await;
    assert_eq!(hint.unwrap().unwrap().get_payload_bytes(), b"a");
}

#[tokio::test]
async fn a_terminal_job_says_how_it_ended_and_an_unknown_one_that_it_is_unknown() {
    let mut task = Task::new().await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
        task.hset("payload", &[(place, "1")]).await;
    }
    let before = task.exact().await;
    for place in ["completed", "failed", "cancelled"] {
        assert_eq!(task.ok("cancel", &[place, "", "channel"]).await, format!("[terminal {place}]"));
    }
    assert_eq!(task.ok("cancel", &["nobody", "", "channel"]).await, "[unknown]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_repeated_cancel_changes_nothing() {
    let mut task = Task::new().await;
    task.waiting(&["a"]).await;
    assert_eq!(task.ok("cancel", &["a", "why", "channel"]).await, "[cancelled]");
    let before = task.exact().await;
    assert_eq!(task.ok("cancel", &["a", "again", "channel"]).await, "[terminal cancelled]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_task_that_keeps_no_cancelled_jobs_removes_every_column() {
    let mut task = Task::new().await;
    task.hset("meta", &[("keepCancelled", "0")]).await;
    task.waiting(&["a"]).await;
    for column in ["attempt", "stalledCount", "result", "error", "options", "maxCount", "dispatchedAt", "deferred"] {
        task.hset(column, &[("a", "1")]).await;
    }
    assert_eq!(task.ok("cancel", &["a", "", "channel"]).await, "[cancelled]");
    assert_eq!(without(task.keys().await, &["meta", "events"]), [] as [&str; 0]);
}
