use crate::call::Task;

#[tokio::test]
async fn every_job_is_counted_where_it_is() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 0 0 0 0 0 0]");
    task.waiting(&["a", "b"]).await;
    task.rpush("wait:high", &["c"]).await;
    task.rpush("wait:low", &["d"]).await;
    task.zadd("delayed", 9e12, "e").await;
    task.running("w", &[("f", 1), ("g", 2)]).await;
    task.snapshot().await;
    task.running("w", &[("h", 3)]).await;
    for (place, ids) in [("completed", &["i"][..]), ("failed", &["j", "k"]), ("cancelled", &["l", "m", "n"])] {
        for id in ids {
            task.zadd(place, 1.0, id).await;
        }
    }
    let before = task.exact().await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 4 1 3 1 2 3]");
    assert_eq!(task.exact().await, before);
}
