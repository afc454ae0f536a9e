use crate::scripts::call::Task;

#[tokio::test]
async fn an_audit_replaces_the_findings_of_the_one_before() {
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
async fn an_audit_writes_nothing_for_a_forgotten_task() {
    let mut task = Task::new().await;
    task.ok("forget", &[]).await;
    assert_eq!(task.ok("audited", &[""]).await, "[unknown]");
    assert!(task.exact().await.is_empty());
}
