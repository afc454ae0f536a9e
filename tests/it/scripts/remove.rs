use crate::scripts::call::{COLUMNS, Task, assert_all, assert_keys, assert_rest, without};

#[tokio::test]
async fn a_job_is_removed_from_any_place_with_every_column() {
    for place in ["delayed", "completed", "failed", "cancelled"] {
        let mut task = Task::with(&format!("{place} a=5, other=5; payload a=1, other=1")).await;
        task.columns(COLUMNS, &["a", "other"]).await;
        assert_eq!(task.ok("remove", "anna a -").await, "[told removed]");
        let left = without(task.keys().await, &["meta", "events"]);
        assert_eq!(left.len(), 2 + COLUMNS.split(' ').count(), "{left:?}");
        assert!(left.iter().all(|line| line.contains("other") && !line.contains("\"a\"")), "{left:?}");
        assert_keys!(task, "events {by=anna, removed=a, total=1, worker=}; meta events=1, fence=4000000000000000");
    }
}

#[tokio::test]
async fn a_removed_waiting_job_leaves_a_tombstone() {
    let mut task = Task::with("waits a b c; attempt b=1").await;
    assert_eq!(task.ok("remove", "- b -").await, "[told removed]");
    assert_all!(
        task,
        "events {removed=b, total=1, worker=}; meta events=1, fence=4000000000000000, tombstones=1; \
         payload a={}, c={}; tombstones b=1; wait a b c"
    );
}

#[tokio::test]
async fn removing_the_first_job_also_removes_the_tombstones_after_it() {
    for list in ["wait:high", "wait", "wait:low"] {
        let mut task = Task::with("payload a=1, b=1, c=1").await;
        task.rpush(list, &["a", "b", "c"]).await;
        task.ok("remove", "- b -").await;
        assert_eq!(task.list(list).await, ["a", "b", "c"]);
        task.ok("remove", "- a -").await;
        assert_eq!(task.list(list).await, ["c"]);
        assert_keys!(task, "no tombstones; meta.tombstones=0");
    }
}

#[tokio::test]
async fn many_jobs_are_returned_in_order_and_share_one_event() {
    let mut task = Task::with("waits first w-1 w-2; runs w: run=7; payload late=1, old=1, bad=1").await;
    task.write("delayed late=9e12; completed old=1; failed bad=1").await;
    let told = task.ok("remove", "- w-2 - run - absent - late - old - w-1 - bad -").await;
    assert_eq!(told, "[told removed running unknown removed removed removed removed]");
    assert_all!(
        task,
        "active run; events {removed=w-2 late old w-1 bad, total=5, worker=}; locks run=w:7; \
         meta events=5, fence=4000000000000000, tombstones=2; payload first={}, run={}; tombstones w-1=1, w-2=1; \
         wait first w-1 w-2"
    );
}

#[tokio::test]
async fn a_cancelled_job_whose_entry_is_still_there_is_one_tombstone() {
    let mut task = Task::with("waits first a").await;
    task.ok("cancel", "why channel - a -").await;
    assert_eq!(task.ok("remove", "- a -").await, "[told removed]");
    assert_keys!(task, "tombstones a=1; meta.tombstones=1; no cancelled, error");
}

#[tokio::test]
async fn a_held_job_is_kept_and_nothing_is_written() {
    let mut task = Task::with("runs w: a=7").await;
    assert_eq!(task.unchanged("remove", "- a w:7 absent -").await, "[told running unknown]");
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = Task::with("waits waiting; runs w: running=7; payload failed=1; failed failed=5").await;
    let told = task.unchanged("remove", "- waiting 5 running w:6 failed 6 absent 5").await;
    assert_eq!(told, "[told changed changed changed unknown]");
    assert_eq!(task.ok("remove", "- failed 5").await, "[told removed]");
}

#[tokio::test]
async fn a_repeated_remove_changes_nothing_and_ids_count_once() {
    let mut task = Task::with("waits first a").await;
    assert_eq!(task.ok("remove", "- a - a -").await, "[told removed changed]");
    assert_keys!(task, "meta.tombstones=1");
    assert_eq!(task.unchanged("remove", "- a -").await, "[told unknown]");
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::with("meta eventMode=off; waits a").await;
    assert_eq!(task.ok("remove", "anna a -").await, "[told removed]");
    assert_rest!(task, "meta", "");
}

#[tokio::test]
async fn one_call_removes_at_most_512_kib_and_a_larger_job_alone() {
    let mut task = Task::new().await;
    let half = "x".repeat(300 << 10);
    for id in ["a", "b", "c"] {
        task.write(&format!("completed {id}=5; payload {id}=1; result {id}={half}")).await;
    }
    task.hset("payload", &[("huge", &half.repeat(3))]).await;
    task.write("wait huge").await;
    assert_eq!(task.ok("remove", "- huge - a - b - running - c -").await, "[told removed left left unknown left]");
    assert_eq!(task.ok("remove", "- a - b - c -").await, "[told removed left left]");
    assert_eq!(task.ok("remove", "- b - c -").await, "[told removed left]");
    assert_eq!(task.ok("remove", "- c -").await, "[told removed]");
    assert_keys!(task, "no payload");
}

#[tokio::test]
async fn a_job_that_is_named_with_its_state_is_removed_only_in_that() {
    for (place, state) in
        [("delayed", "delayed"), ("completed", "completed"), ("failed", "failed"), ("wait", "waiting")]
    {
        let mut task = Task::new().await;
        if place == "wait" {
            task.write("waits a").await;
        } else {
            task.write(&format!("payload a={{}}; {place} a=5")).await;
        }
        assert_eq!(task.unchanged("remove", "- a =cancelled").await, "[told changed]");
        assert_eq!(task.unchanged("remove", "- none =cancelled").await, "[told unknown]");
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
            task.write(&format!("payload {id}=1; failed {id}=5")).await;
        }
        task.write("waits one two; runs w: runs=7; delayed later=9e12").await;
        task.ok("remove", "ada old -").await;
        assert_eq!(task.field("meta", "failedSinceCompleted").await, counted, "one is left");
        task.ok("remove", &[by, "other", ""]).await;
        assert_eq!(task.field("meta", "failedSinceCompleted").await, left, "by {by:?}");
    }
}
