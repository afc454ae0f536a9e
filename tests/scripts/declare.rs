use crate::call::Task;

#[tokio::test]
async fn the_options_are_written_with_the_wire_version() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("declare", &["1", "maxCount", "2", "eventMode", "on"]).await, "[declared []]");
    assert_eq!(
        task.keys().await,
        [r#"meta hash {"eventMode": "on", "fence": "4000000000000000", "maxCount": "2", "wire": "1"}"#]
    );
}

#[tokio::test]
async fn a_change_is_told_with_the_old_value_and_the_newest_start_wins() {
    let mut task = Task::new().await;
    task.ok("declare", &["1", "maxCount", "2", "eventMode", "on", "priority", "low"]).await;
    let reply = task.ok("declare", &["1", "maxCount", "5", "eventMode", "on", "priority", "high"]).await;
    assert_eq!(reply, "[declared [maxCount 2 5 priority low high]]");
    assert!(task.held("meta").await.contains(r#""maxCount": "5", "priority": "high""#));
}

#[tokio::test]
async fn the_same_declaration_twice_writes_nothing() {
    let mut task = Task::new().await;
    task.ok("declare", &["1", "maxCount", "2"]).await;
    let before = task.exact().await;
    assert_eq!(task.ok("declare", &["1", "maxCount", "2"]).await, "[declared []]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_newer_wire_version_is_refused_and_an_older_one_is_raised() {
    let mut task = Task::new().await;
    task.hset("meta", &[("wire", "2")]).await;
    let before = task.exact().await;
    assert_eq!(task.refused("declare", &["1", "maxCount", "2"]).await, "NEWERWIRE");
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("declare", &["3", "maxCount", "2"]).await, "[declared []]");
    assert!(task.held("meta").await.contains(r#""wire": "3""#));
}
