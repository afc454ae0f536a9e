use crate::scripts::call::{Task, assert_all, assert_keys};

#[tokio::test]
async fn a_worker_writes_its_fields_with_the_time_of_the_server() {
    let mut task = Task::with("no meta").await;
    assert_eq!(task.ok("announce", "host h pid 7").await, "[announced]");
    assert_all!(task, "worker host=h, lastSeenAt=NOW, pid=7");
}

#[tokio::test]
async fn the_smallest_difference_of_the_clocks_is_kept() {
    let mut task = Task::new().await;
    for (before, after) in [("99999999999999", "NOW"), ("x", "NOW"), ("5", "5")] {
        task.hset("worker", &[("bootedAt", before)]).await;
        assert_eq!(task.ok("announce", "bootClock 0").await, "[announced]");
        assert_keys!(task, format!("worker bootClock=0, bootedAt={after}, lastSeenAt=NOW"));
    }
}

#[tokio::test]
async fn later_fields_are_added_or_replaced() {
    let mut task = Task::with("worker host=h, held:mails=3, lastSeenAt=1").await;
    let args = "held:mails 0 stoppedAt 5";
    for _ in 0..2 {
        assert_eq!(task.ok("announce", &args).await, "[announced]");
        assert_keys!(task, "worker held:mails=0, host=h, lastSeenAt=NOW, stoppedAt=5");
    }
}
