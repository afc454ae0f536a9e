use crate::scripts::call::Task;

#[tokio::test]
async fn each_is_told_who_had_the_name_before_and_a_start_that_is_made_again_changes_nothing() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("take_name", &["a"]).await, "[taken]");
    assert_eq!(task.ok("take_name", &["b"]).await, "[taken a]");
    // Of two in one millisecond one goes before.
    assert_eq!(task.ok("take_name", &["c"]).await, "[taken a b]");
    assert_eq!(task.ok("take_name", &["b"]).await, "[taken a]");
    assert_eq!(task.ok("take_name", &["a"]).await, "[taken]");
}

#[tokio::test]
async fn a_clock_that_went_back_puts_nobody_behind() {
    let mut task = Task::new().await;
    task.zadd("workers", 9e15, "future").await;
    assert_eq!(task.ok("take_name", &["now"]).await, "[taken future]");
    assert_eq!(task.ok("take_name", &["next"]).await, "[taken future now]");
}
