use crate::scripts::call::{Task, without};

/// Delayed jobs `a` (due at 5), `b` (at 6) and `h` (at 7, high priority); `z` waits.
async fn delayed() -> Task {
    let mut task = Task::new().await;
    task.waiting(&["z"]).await;
    for (id, due) in [("a", 5.0), ("b", 6.0), ("h", 7.0)] {
        task.hset("payload", &[(id, "1")]).await;
        task.zadd("delayed", due, id).await;
    }
    task.hset("priority", &[("h", "high")]).await;
    task
}

#[tokio::test]
async fn delayed_jobs_move_to_the_front_of_their_lists_in_order() {
    let mut task = delayed().await;
    task.hset("attempt", &[("a", "2")]).await;
    let told = task.ok("run_now", &["anna", "b", "", "a", "", "h", ""]).await;
    assert_eq!(told, "[told promoted promoted promoted]");
    assert_eq!(
        without(task.keys().await, &["payload"]),
        [
            r#"attempt hash {"a": "2"}"#,
            r#"enqueuedAt hash {"a": "NOW", "b": "NOW", "h": "NOW"}"#,
            r#"events stream [NOW {"by": "anna", "promoted": "b a h", "total": "3", "worker": ""}]"#,
            r#"meta hash {"events": "3", "fence": "4000000000000000"}"#,
            r#"priority hash {"h": "high"}"#,
            r#"wait list ["b", "a", "z"]"#,
            r#"wait:high list ["h"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
}

#[tokio::test]
async fn jobs_in_other_states_return_them_and_stay_unchanged() {
    let mut task = Task::new().await;
    task.waiting(&["waiting"]).await;
    task.running("w", &[("running", 7)]).await;
    for place in ["completed", "failed", "cancelled"] {
        task.hset("payload", &[(place, "1")]).await;
        task.zadd(place, 1.0, place).await;
    }
    let before = task.exact().await;
    let args = ["", "waiting", "", "running", "", "completed", "", "failed", "", "cancelled", "", "nobody", ""];
    let told = task.ok("run_now", &args).await;
    assert_eq!(told, "[told waiting running completed failed cancelled unknown]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = delayed().await;
    let before = task.exact().await;
    assert_eq!(task.ok("run_now", &["", "a", "6", "nobody", "5", "z", "5"]).await, "[told changed unknown changed]");
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("run_now", &["", "a", "5", "b", "7"]).await, "[told promoted changed]");
    assert_eq!(task.held("delayed").await, r#"zset ["b": 6, "h": 7]"#);
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_a_double_id_counts_once() {
    let mut task = delayed().await;
    assert_eq!(task.ok("run_now", &["", "a", "", "a", ""]).await, "[told promoted changed]");
    assert_eq!(task.list("wait").await, ["a", "z"]);
    let before = task.exact().await;
    assert_eq!(task.ok("run_now", &["", "a", ""]).await, "[told waiting]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_paused_task_wakes_no_worker_and_events_may_be_off() {
    let mut task = delayed().await;
    task.hset("meta", &[("paused", "1"), ("eventMode", "off")]).await;
    assert_eq!(task.ok("run_now", &["anna", "a", ""]).await, "[told promoted]");
    assert_eq!(task.list("wait").await, ["a", "z"]);
    assert_eq!(task.held("wake").await, "");
    assert_eq!(task.held("events").await, "");
}

#[tokio::test]
async fn a_job_with_a_tombstone_of_its_id_runs_once() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    task.ok("remove", &["", "a", ""]).await;
    task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "9000000"]).await;
    assert_eq!(task.ok("run_now", &["", "a", ""]).await, "[told promoted]");
    assert_eq!(task.list("wait").await, ["a", "first", "a"]);
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 0 0]");
    let reply = task.ok("settle", &["1", "w", "1000", "9", "0", "0"]).await;
    assert!(reply.contains(" a first ["), "{reply}");
    assert_eq!(task.held("tombstones").await, "");
}
