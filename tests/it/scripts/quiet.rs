use crate::scripts::call::{Task, assert_all, assert_keys};

#[tokio::test]
async fn a_quiet_worker_is_recorded_among_the_events_with_the_person() {
    let mut task = Task::with("meta events=41").await;
    assert_eq!(task.ok("quiet", "anna quiet w").await, "[recorded]");
    assert_all!(task, "events {by=anna, quiet=w, total=41, worker=}; meta events=41, fence=4000000000000000");
}

#[tokio::test]
async fn without_events_a_quiet_worker_is_not_recorded() {
    let mut task = Task::with("meta eventMode=off").await;
    assert_eq!(task.ok("quiet", "anna unquiet w").await, "[recorded]");
    assert_keys!(task, "no events");
}
