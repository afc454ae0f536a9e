use crate::call::Task;

#[tokio::test]
async fn a_user_who_may_do_all_lacks_nothing_and_nothing_is_written() {
    let mut task = Task::new().await;
    let before = task.exact().await;
    assert_eq!(task.ok("rights", &[]).await, "[rights]");
    assert_eq!(task.exact().await, before);
}
