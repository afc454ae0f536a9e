use crate::scripts::call::{Task, assert_all, assert_keys};
use crate::scripts::schedules::{Firing, fire, ledger, row};

/// A task with the schedule `a`, whose next tick is due at 15 ms.
async fn due() -> Task {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    task
}

#[tokio::test]
async fn jobs_by_hand_are_counted_apart_from_ticks() {
    let mut task = due().await;
    assert_eq!(task.ok("schedule_run", "a d 0 5 a@5~9 {} 15 a@15~9 {}").await, "[ran 2]");
    assert_all!(
        task,
        "dispatchedAt a@15~9=NOW, a@5~9=NOW; events {dispatched=a@5~9 a@15~9, total=2, worker=}; \
         meta events=2, fence=4000000000000000, largest=1024; options a@15~9={}, a@5~9={}; payload a@15~9=7, a@5~9=7; \
         schedules a=15; schedules:input a=7; schedules:ledger a=15 1 0 0 0 0 2 - - - - - - -; \
         schedules:rule a=d - put 0 ada {}; schedules:ticks a=15h2; wait a@5~9 a@15~9; wake marker=0, spare=1"
    );
    assert_eq!(task.totals().await, ["2", ""]);
    // Ticks do not wait for them.
    assert_eq!(fire(&mut task, &[Firing::of("a", &[15])]).await, "done 1 -");
}

#[tokio::test]
async fn ticks_wait_for_a_run_that_becomes_the_last_job() {
    let mut task = due().await;
    assert_eq!(task.ok("schedule_run", "a d 1 15 a@15~9 {}").await, "[ran 1]");
    assert_eq!(ledger(&mut task, "a").await, "15 1 0 0 0 0 1 - a@15~9 NOW - - - -");
    assert_eq!(fire(&mut task, &[Firing::of("a", &[15])]).await, "done 0 -");
}

#[tokio::test]
async fn a_repeated_call_writes_no_second_job() {
    let mut task = due().await;
    let args = "a d 1 5 a@5~9 {} 15 a@15~9 {} 15 a@15~9 {}";
    assert_eq!(task.ok("schedule_run", args).await, "[ran 2]");
    assert_eq!(task.unchanged("schedule_run", args).await, "[ran 0]");
    task.write("no payload; completed a@5~9=1").await;
    assert_eq!(task.ok("schedule_run", args).await, "[ran 1]");
    assert_eq!(task.unchanged("schedule_run", "a d 1").await, "[ran 0]");
}

#[tokio::test]
async fn another_rule_or_a_row_that_is_damaged_runs_nothing() {
    let mut task = due().await;
    assert_eq!(task.unchanged("schedule_run", "a e 1 5 a@5~9 {}").await, "[changed]");
    assert_eq!(task.unchanged("schedule_run", "b d 1 5 b@5~9 {}").await, "[unknown]");
    for damage in ["schedules:rule a=damaged", "schedules:ledger a=damaged", "no schedules:input"] {
        let mut task = due().await;
        task.write(damage).await;
        assert_eq!(task.unchanged("schedule_run", "a d 1 5 a@5~9 {}").await, "[unknown]", "{damage}");
    }
}

#[tokio::test]
async fn runs_get_the_priority_and_the_pause_of_the_task() {
    let mut task = Task::with("meta priority=low, paused=5, eventMode=off").await;
    row(&mut task, "a", 15).await;
    assert_eq!(task.ok("schedule_run", "a d 0 5 a@5~9 {}").await, "[ran 1]");
    assert_keys!(task, "wait:low a@5~9; priority a@5~9=low; no wait, wake, events");
}

#[tokio::test]
async fn more_than_two_hundred_jobs_are_refused() {
    let mut task = due().await;
    let jobs: String = (0..200).map(|number| format!(" {number} a@{number}~9 {{}}")).collect();
    assert_eq!(task.refused("schedule_run", &format!("a d 0{jobs} 200 a@200~9 {{}}")).await, "ERR");
    assert_eq!(task.ok("schedule_run", &format!("a d 0{jobs}")).await, "[ran 200]");
}
