use crate::call::Task;

#[tokio::test]
async fn a_worker_is_listed_by_when_it_was_seen_last() {
    let mut task = Task::new().await;
    task.del("meta").await;
    task.zadd("workers", 1.0, "w").await;
    task.zadd("workers", 2.0, "other").await;
    for _ in 0..2 {
        assert_eq!(task.ok("enlist", &["w"]).await, "[enlisted]");
        assert_eq!(task.keys().await, [r#"workers zset ["other": 2, "w": NOW]"#]);
    }
}
