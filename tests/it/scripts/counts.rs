use crate::scripts::call::{Task, assert_keys};

#[tokio::test]
async fn every_job_is_counted_in_its_place() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("counts", "").await, "[counted 0 0 0 0 0 0 0 0 0]");
    task.write("waits a b; wait:high c; wait:low d; delayed e=9e12; runs w: f=1, g=2; snapshot; runs w: h=3").await;
    task.write("claimed f=1").await;
    for (place, ids) in [("completed", &["i"][..]), ("failed", &["j", "k"]), ("cancelled", &["l", "m", "n"])] {
        for id in ids {
            task.zadd(place, 1.0, id).await;
        }
    }
    assert_eq!(task.unchanged("counts", "").await, "[counted 4 1 1 2 0 1 2 3 0]");
}

#[tokio::test]
async fn tombstones_are_not_counted() {
    let mut task = Task::with("waits first a b c").await;
    task.ok("cancel", "why channel - b -").await;
    task.ok("remove", "- c -").await;
    assert_keys!(task, "wait first a b c");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 1 0]");
    // It waits once, with two entries.
    task.ok("dispatch", "1 1 - c {}").await;
    assert_eq!(task.ok("counts", "").await, "[counted 3 0 0 0 0 0 0 1 0]");
}

#[tokio::test]
async fn a_count_is_never_negative() {
    let mut task = Task::with("meta tombstones=5; waits a").await;
    assert_eq!(task.ok("counts", "").await, "[counted 0 0 0 0 0 0 0 0 0]");
}
