use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};

/// Delayed jobs `a` (due at 5), `b` (at 6) and `h` (at 7, high priority); `z` waits.
async fn delayed() -> Task {
    let mut task = Task::with("waits z").await;
    for (id, due) in [("a", 5.0), ("b", 6.0), ("h", 7.0)] {
        task.write(&format!("payload {id}=1; delayed {id}={due}")).await;
    }
    task.write("priority h=high").await;
    task
}

#[tokio::test]
async fn delayed_jobs_move_to_the_front_of_their_lists_in_order() {
    let mut task = delayed().await;
    task.write("attempt a=2").await;
    let told = task.ok("run_now", "anna b - a - h -").await;
    assert_eq!(told, "[told promoted promoted promoted]");
    assert_rest!(
        task,
        "payload",
        "attempt a=2; enqueuedAt a=NOW, b=NOW, h=NOW; events {by=anna, promoted=b a h, total=3, worker=}; \
         meta events=3, fence=4000000000000000; priority h=high; wait b a z; wait:high h; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn jobs_in_other_states_return_their_state_and_stay() {
    let mut task = Task::with("waits waiting; runs w: running=7").await;
    for place in ["completed", "failed", "cancelled"] {
        task.write(&format!("payload {place}=1; {place} {place}=1")).await;
    }
    let told = task.unchanged("run_now", "- waiting - running - completed - failed - cancelled - absent -").await;
    assert_eq!(told, "[told waiting running completed failed cancelled unknown]");
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = delayed().await;
    assert_eq!(task.unchanged("run_now", "- a 6 absent 5 z 5").await, "[told changed unknown changed]");
    assert_eq!(task.ok("run_now", "- a 5 b 7").await, "[told promoted changed]");
    assert_keys!(task, "delayed b=6, h=7");
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_a_double_id_counts_once() {
    let mut task = delayed().await;
    assert_eq!(task.ok("run_now", "- a - a -").await, "[told promoted changed]");
    assert_keys!(task, "wait a z");
    assert_eq!(task.unchanged("run_now", "- a -").await, "[told waiting]");
}

#[tokio::test]
async fn a_paused_task_wakes_no_worker_and_events_may_be_off() {
    let mut task = delayed().await;
    task.write("meta paused=1, eventMode=off").await;
    assert_eq!(task.ok("run_now", "anna a -").await, "[told promoted]");
    assert_keys!(task, "wait a z; no wake, events");
}

#[tokio::test]
async fn a_job_with_a_tombstone_of_its_id_runs_once() {
    let mut task = Task::with("waits first a").await;
    task.ok("remove", "- a -").await;
    task.ok("dispatch", "1 1 1 a 1 delay 1 9000000").await;
    assert_eq!(task.ok("run_now", "- a -").await, "[told promoted]");
    assert_keys!(task, "wait a first a");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 0 0]");
    assert_text!(task.ok("settle", "1 w 1000 9 0 0").await, contains(" a first ["));
    assert_keys!(task, "no tombstones");
}
