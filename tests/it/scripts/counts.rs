use crate::scripts::call::Task;

#[tokio::test]
async fn every_job_is_counted_in_its_place() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 0 0 0 0 0 0 0 0 0]");
    task.waiting(&["a", "b"]).await;
    task.rpush("wait:high", &["c"]).await;
    task.rpush("wait:low", &["d"]).await;
    task.zadd("delayed", 9e12, "e").await;
    task.running("w", &[("f", 1), ("g", 2)]).await;
    task.snapshot().await;
    task.running("w", &[("h", 3)]).await;
    task.hset("claimed", &[("f", "1")]).await;
    for (place, ids) in [("completed", &["i"][..]), ("failed", &["j", "k"]), ("cancelled", &["l", "m", "n"])] {
        for id in ids {
            task.zadd(place, 1.0, id).await;
        }
    }
    let before = task.exact().await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 4 1 1 2 0 1 2 3 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn tombstones_are_not_counted() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b", "c"]).await;
    task.ok("cancel", &["why", "channel", "", "b", ""]).await;
    task.ok("remove", &["", "c", ""]).await;
    assert_eq!(task.list("wait").await, ["first", "a", "b", "c"]);
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 1 0]");
    // It waits once, with two entries.
    task.ok("dispatch", &["1", "1", "1", "c", "{}"]).await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 3 0 0 0 0 0 0 1 0]");
}

#[tokio::test]
async fn a_count_is_never_negative() {
    let mut task = Task::new().await;
    task.hset("meta", &[("tombstones", "5")]).await;
    task.waiting(&["a"]).await;
    assert_eq!(task.ok("counts", &[]).await, "[counted 0 0 0 0 0 0 0 0 0]");
}
