use crate::scripts::call::{Task, assert_all, assert_keys};

#[tokio::test]
async fn an_audit_replaces_the_findings_of_the_one_before() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("audited", "'nowhere 2 stale_record 1'").await, "[noted]");
    assert_all!(task, "meta auditFound=nowhere 2 stale_record 1, auditedAt=NOW, fence=4000000000000000");
    assert_eq!(task.ok("audited", "-").await, "[noted]");
    assert_keys!(task, "meta.auditFound=");
}

#[tokio::test]
async fn an_audit_writes_nothing_for_a_forgotten_task() {
    let mut task = Task::new().await;
    task.ok("forget", "").await;
    assert_eq!(task.ok("audited", "-").await, "[unknown]");
    assert!(task.exact().await.is_empty());
}
