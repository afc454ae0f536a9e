use crate::scripts::call::Task;

#[tokio::test]
async fn a_name_is_listed_with_the_time_it_was_last_seen() {
    // The same for the lists of workers and of tasks.
    for list in ["workers", "tasks"] {
        let mut task = Task::with("no meta").await;
        task.zadd(list, 1.0, "a").await;
        task.zadd(list, 2.0, "other").await;
        for _ in 0..2 {
            assert_eq!(task.ok_at(list, "enlist", "a").await, "[enlisted]");
            assert_eq!(task.keys().await, [format!(r#"{list} zset ["other": 2, "a": NOW]"#)]);
        }
    }
}
