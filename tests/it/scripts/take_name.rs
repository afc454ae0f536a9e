use crate::scripts::call::Task;

#[tokio::test]
async fn a_worker_receives_earlier_holders_and_may_repeat_its_start() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("take_name", "a").await, "[taken]");
    assert_eq!(task.ok("take_name", "b").await, "[taken a]");
    // Even within one millisecond, one is first.
    assert_eq!(task.ok("take_name", "c").await, "[taken a b]");
    assert_eq!(task.ok("take_name", "b").await, "[taken a]");
    assert_eq!(task.ok("take_name", "a").await, "[taken]");
}

#[tokio::test]
async fn a_clock_that_went_back_keeps_the_order() {
    let mut task = Task::with("workers future=9e15").await;
    assert_eq!(task.ok("take_name", "now").await, "[taken future]");
    assert_eq!(task.ok("take_name", "next").await, "[taken future now]");
}
