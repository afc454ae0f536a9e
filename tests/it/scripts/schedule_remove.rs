use crate::scripts::call::{Task, assert_all, assert_rest};
use crate::scripts::schedules::row;

#[tokio::test]
async fn a_removed_schedule_leaves_its_ledger_and_its_pause() {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    task.write("schedules:ledger a=15 1 2 3 4 5 6 5 j 6 1 5 - -; schedules:paused a={}; schedules:ticks a=5f1").await;
    task.write("schedules:pending a=1; schedules:named a=1; waits j").await;
    assert_eq!(task.ok("schedule_remove", "a").await, "[removed]");
    assert_all!(
        task,
        "meta fence=4000000000000000, ticksOverlapped=1; payload j={}; schedules:gone a=NOW; \
         schedules:ledger a=- 1 2 4 4 5 6 5 j 6 1 - - -; schedules:paused a={}; schedules:ticks a=5f1; wait j"
    );
    assert_eq!(task.unchanged("schedule_remove", "a").await, "[unknown]");
}

#[tokio::test]
async fn a_damaged_row_can_be_removed() {
    for damage in ["schedules:rule a=damaged", "no schedules:rule", "schedules:ledger a=damaged"] {
        let mut task = Task::new().await;
        row(&mut task, "a", 15).await;
        task.write(damage).await;
        assert_eq!(task.ok("schedule_remove", "a").await, "[removed]", "{damage}");
        assert_rest!(task, "meta, schedules:ledger", "schedules:gone a=NOW");
    }
}
