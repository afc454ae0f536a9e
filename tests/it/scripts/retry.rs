use crate::scripts::call::{Task, assert_all, assert_keys, assert_text, without};

/// A failed and a cancelled job with everything that runs leave.
async fn ended() -> Task {
    let mut task = Task::with("payload f=1, c=2; failed f=5; cancelled c=6").await;
    task.columns("attempt stalledCount result error snoozes enqueuedAt recovery expiresAt progress", &["f", "c"]).await;
    task
}

#[tokio::test]
async fn retried_jobs_wait_at_the_back_as_if_they_had_never_run() {
    let mut task = ended().await;
    task.write("options f={}; maxCount f=4; dispatchedAt f=77; waits a").await;
    assert_eq!(task.ok("retry", "anna 0 c - f -").await, "[told retried retried]");
    assert_all!(
        task,
        "dispatchedAt f=77; enqueuedAt c=NOW, f=NOW; events {by=anna, manually_retried=c f, total=2, worker=}; \
         maxCount f=4; meta events=2, fence=4000000000000000; options f={}; payload a={}, c=2, f=1; wait a c f; \
         wake marker=0, spare=1"
    );
    assert_text!(task.ok("settle", "1 w 1000 3 0 0").await, contains(" a c f [{} 2 1] [[3 0 0 {} 77 '' '' '']]"));
}

#[tokio::test]
async fn each_job_goes_to_the_list_of_its_priority() {
    let mut task = ended().await;
    task.write("payload l=3; failed l=7; priority f=high, l=low").await;
    assert_eq!(task.ok("retry", "- 0 l - f - c -").await, "[told retried retried retried]");
    assert_keys!(task, "wait:high f; wait c; wait:low l; priority f=high, l=low");
}

#[tokio::test]
async fn a_job_with_an_old_entry_waits_by_the_first_of_both() {
    let mut task = ended().await;
    task.write("waits first a b").await;
    task.ok("cancel", "why channel - a -").await;
    task.write("no events").await;
    assert_eq!(task.ok("retry", "- 0 f - a -").await, "[told retried retried]");
    assert_keys!(task, "wait first a b f a; tombstones a=1; meta.tombstones=1; enqueuedAt a=NOW, c=1, f=NOW");
    assert_keys!(task, "error c=1; cancelled c=6");
    assert_eq!(task.ok("counts", "").await, "[counted 4 0 0 0 0 0 0 1 0]");
}

#[tokio::test]
async fn leftovers_of_a_cancel_do_not_end_the_next_run() {
    let mut task = ended().await;
    task.write("cancelling f=late").await;
    task.ok("retry", "- 0 f -").await;
    assert_keys!(task, "no cancelling");
}

#[tokio::test]
async fn jobs_in_other_states_return_their_state_and_stay() {
    let mut task = Task::with("waits waiting; runs w: running=7; payload delayed=1, completed=1").await;
    task.write("delayed delayed=9e12; completed completed=1").await;
    let told = task.unchanged("retry", "anna 0 waiting - running - delayed - completed - absent -").await;
    assert_eq!(told, "[told waiting running delayed completed unknown]");
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = ended().await;
    assert_eq!(task.unchanged("retry", "- 0 f 4 c 7 absent 1").await, "[told changed changed unknown]");
    assert_eq!(task.ok("retry", "- 0 f 5 c 7").await, "[told retried changed]");
    assert_keys!(task, "cancelled c=6");
}

#[tokio::test]
async fn a_repeated_retry_changes_nothing_and_a_double_id_counts_once() {
    let mut task = ended().await;
    assert_eq!(task.ok("retry", "- 0 f - f -").await, "[told retried changed]");
    assert_keys!(task, "wait f");
    assert_eq!(task.unchanged("retry", "- 0 f -").await, "[told waiting]");
    assert_eq!(task.unchanged("retry", "- 0 f 5").await, "[told changed]");
}

#[tokio::test]
async fn a_paused_task_wakes_no_worker_and_events_may_be_off() {
    let mut task = ended().await;
    task.write("meta paused=1, eventMode=off").await;
    assert_eq!(task.ok("retry", "anna 0 f -").await, "[told retried]");
    assert_eq!(without(task.keys().await, &["wake", "events"]), task.keys().await);
}

#[tokio::test]
async fn two_hundred_jobs_are_retried_in_order_in_one_call() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (100..300).map(|number| number.to_string()).collect();
    let mut args = vec!["", "0"];
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
    task.write("tombstones f=1; meta tombstones=1").await;
    assert_eq!(task.ok("retry", "- 0 f -").await, "[told retried]");
    assert_keys!(task, "wait f");
    assert!(task.ok("settle", "1 w 1000 1 0 0").await.contains(" f "));
}

#[tokio::test]
async fn a_job_whose_key_another_job_has_is_a_duplicate() {
    for (rows, told) in [
        ("waits other; unique k=other done 0 1", "duplicate other"),
        ("runs w: other=7; unique k=other done 0 1", "duplicate other"),
        ("runs w: other=7; unique k=other started 0 1", "retried"),
        ("runs w: other=7; claimed other=7; unique k=other started 0 1", "duplicate other"),
        ("payload other=1; completed other=1; unique k=other done 0 1", "retried"),
        ("unique k=other period 9000000000000 1", "duplicate other"),
        ("unique k=other period 1 1", "retried"),
        ("unique k=f done 0 1", "retried"),
        ("unique k=f period 9000000000000 1", "retried"),
        ("meta paused=1", "retried"),
    ] {
        let mut task = ended().await;
        task.write(&format!("uniqueOf f=k; {rows}")).await;
        assert_eq!(task.ok("retry", "- 0 f -").await, format!("[told {told}]"), "{rows}");
        let has_it = task.field("unique", "k").await.starts_with("f ");
        assert_eq!(has_it, told == "retried", "{rows}");
        assert_keys!(task, "uniqueOf f=k");
    }
}

#[tokio::test]
async fn a_duplicate_that_is_retried_anyway_loses_its_key() {
    let mut task = ended().await;
    task.write("waits other; unique k=other done 0 1; uniqueOf f=k, other=k, c=l").await;
    assert_eq!(task.unchanged("retry", "- 0 f -").await, "[told duplicate other]");
    assert_eq!(task.ok("retry", "- 1 f - c -").await, "[told retried retried]");
    assert_keys!(task, "uniqueOf c=l, other=k; unique k=other done 0 1, l=c done 0 NOW; wait other f c");
}

#[tokio::test]
async fn of_two_jobs_with_one_key_only_the_first_is_retried() {
    let mut task = ended().await;
    task.write("unique k=f done 0 1; uniqueOf f=k, c=k").await;
    assert_eq!(task.ok("retry", "- 0 c - f -").await, "[told retried duplicate c]");
    assert_keys!(task, "wait c; unique k=c done 0 NOW; failed f=5");
}
