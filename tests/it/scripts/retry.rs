use crate::scripts::call::{Task, without};

/// A failed and a cancelled job with everything that runs leave.
async fn ended() -> Task {
    let mut task = Task::new().await;
    task.hset("payload", &[("f", "1"), ("c", "2")]).await;
    task.zadd("failed", 5.0, "f").await;
    task.zadd("cancelled", 6.0, "c").await;
    for column in
        ["attempt", "stalledCount", "result", "error", "snoozes", "enqueuedAt", "recovery", "expiresAt", "progress"]
    {
        task.hset(column, &[("f", "1"), ("c", "1")]).await;
    }
    task
}

#[tokio::test]
async fn retried_jobs_wait_at_the_back_as_if_they_had_never_run() {
    let mut task = ended().await;
    task.hset("options", &[("f", "{}")]).await;
    task.hset("maxCount", &[("f", "4")]).await;
    task.hset("dispatchedAt", &[("f", "77")]).await;
    task.waiting(&["a"]).await;
    assert_eq!(task.ok("retry", &["anna", "c", "", "f", ""]).await, "[told retried retried]");
    assert_eq!(
        task.keys().await,
        [
            r#"dispatchedAt hash {"f": "77"}"#,
            r#"enqueuedAt hash {"c": "NOW", "f": "NOW"}"#,
            r#"events stream [NOW {"by": "anna", "manually_retried": "c f", "total": "2", "worker": ""}]"#,
            r#"maxCount hash {"f": "4"}"#,
            r#"meta hash {"events": "2", "fence": "4000000000000000"}"#,
            r#"options hash {"f": "{}"}"#,
            r#"payload hash {"a": "{}", "c": "2", "f": "1"}"#,
            r#"wait list ["a", "c", "f"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
    let reply = task.ok("settle", &["1", "w", "1000", "3", "0", "0"]).await;
    assert!(reply.contains(" a c f [{} 2 1] [[3 0 0 {} 77 '' '' '']]"), "{reply}");
}

#[tokio::test]
async fn each_job_goes_to_the_list_of_its_priority() {
    let mut task = ended().await;
    task.hset("payload", &[("l", "3")]).await;
    task.zadd("failed", 7.0, "l").await;
    task.hset("priority", &[("f", "high"), ("l", "low")]).await;
    assert_eq!(task.ok("retry", &["", "l", "", "f", "", "c", ""]).await, "[told retried retried retried]");
    assert_eq!(task.list("wait:high").await, ["f"]);
    assert_eq!(task.list("wait").await, ["c"]);
    assert_eq!(task.list("wait:low").await, ["l"]);
    assert_eq!(task.held("priority").await, r#"hash {"f": "high", "l": "low"}"#);
}

#[tokio::test]
async fn a_job_with_an_old_entry_waits_by_the_first_of_both() {
    let mut task = ended().await;
    task.waiting(&["first", "a", "b"]).await;
    task.ok("cancel", &["why", "channel", "", "a", ""]).await;
    task.del("events").await;
    assert_eq!(task.ok("retry", &["", "f", "", "a", ""]).await, "[told retried retried]");
    assert_eq!(task.list("wait").await, ["first", "a", "b", "f", "a"]);
    assert_eq!(task.held("tombstones").await, r#"hash {"a": "1"}"#);
    assert_eq!(task.field("meta", "tombstones").await, "1");
    assert_eq!(task.held("enqueuedAt").await, r#"hash {"a": "NOW", "c": "1", "f": "NOW"}"#);
    assert_eq!(task.held("error").await, r#"hash {"c": "1"}"#);
    assert_eq!(task.held("cancelled").await, r#"zset ["c": 6]"#);
    assert_eq!(task.ok("counts", &[]).await, "[counted 4 0 0 0 0 0 0 1 0]");
}

#[tokio::test]
async fn leftovers_of_a_cancel_do_not_end_the_next_run() {
    let mut task = ended().await;
    task.hset("cancelling", &[("f", "late")]).await;
    task.ok("retry", &["", "f", ""]).await;
    assert_eq!(task.held("cancelling").await, "");
}

#[tokio::test]
async fn jobs_in_other_states_return_them_and_stay_unchanged() {
    let mut task = Task::new().await;
    task.waiting(&["waiting"]).await;
    task.running("w", &[("running", 7)]).await;
    task.hset("payload", &[("delayed", "1"), ("completed", "1")]).await;
    task.zadd("delayed", 9e12, "delayed").await;
    task.zadd("completed", 1.0, "completed").await;
    let before = task.exact().await;
    let args = ["anna", "waiting", "", "running", "", "delayed", "", "completed", "", "nobody", ""];
    assert_eq!(task.ok("retry", &args).await, "[told waiting running delayed completed unknown]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = ended().await;
    let before = task.exact().await;
    assert_eq!(task.ok("retry", &["", "f", "4", "c", "7", "nobody", "1"]).await, "[told changed changed unknown]");
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("retry", &["", "f", "5", "c", "7"]).await, "[told retried changed]");
    assert_eq!(task.held("cancelled").await, r#"zset ["c": 6]"#);
}

#[tokio::test]
async fn a_repeated_retry_changes_nothing_and_a_double_id_counts_once() {
    let mut task = ended().await;
    assert_eq!(task.ok("retry", &["", "f", "", "f", ""]).await, "[told retried changed]");
    assert_eq!(task.list("wait").await, ["f"]);
    let before = task.exact().await;
    assert_eq!(task.ok("retry", &["", "f", ""]).await, "[told waiting]");
    assert_eq!(task.ok("retry", &["", "f", "5"]).await, "[told changed]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_paused_task_wakes_no_worker_and_events_may_be_off() {
    let mut task = ended().await;
    task.hset("meta", &[("paused", "1"), ("eventMode", "off")]).await;
    assert_eq!(task.ok("retry", &["anna", "f", ""]).await, "[told retried]");
    assert_eq!(without(task.keys().await, &["wake", "events"]), task.keys().await);
}

#[tokio::test]
async fn two_hundred_jobs_are_retried_in_order_in_one_call() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (100..300).map(|number| number.to_string()).collect();
    let mut args = vec![""];
    for id in &ids {
        task.hset("payload", &[(id, "{}")]).await;
        task.zadd("failed", 1.0, id).await;
        args.extend([id, ""]);
    }
    let told = task.ok("retry", &args).await;
    assert_eq!(told.matches("retried").count(), 200);
    assert_eq!(task.list("wait").await, ids);
}

#[tokio::test]
async fn a_wrong_count_of_tombstones_keeps_no_job_from_its_list() {
    let mut task = ended().await;
    task.hset("tombstones", &[("f", "1")]).await;
    task.hset("meta", &[("tombstones", "1")]).await;
    assert_eq!(task.ok("retry", &["", "f", ""]).await, "[told retried]");
    assert_eq!(task.list("wait").await, ["f"]);
    assert!(task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await.contains(" f "));
}
