use crate::scripts::call::Task;

#[tokio::test]
async fn what_an_audit_found_is_noted_and_the_next_one_replaces_it() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("audited", &["nowhere 2 stale_record 1"]).await, "[noted]");
    assert_eq!(
        task.keys().await,
        [r#"meta hash {"auditFound": "nowhere 2 stale_record 1", "auditedAt": "NOW", "fence": "4000000000000000"}"#]
    );
    assert_eq!(task.ok("audited", &[""]).await, "[noted]");
    assert_eq!(task.field("meta", "auditFound").await, "");
}

#[tokio::test]
async fn a_task_that_was_forgotten_stays_so() {
    let mut task = Task::new().await;
    task.ok("forget", &[]).await;
    assert_eq!(task.ok("audited", &[""]).await, "[unknown]");
    assert!(task.exact().await.is_empty());
}
