use crate::scripts::call::Task;

#[tokio::test]
async fn a_job_is_found_in_its_place_with_its_small_columns() {
    let mut task = Task::new().await;
    task.waiting(&["waiting"]).await;
    task.running("w", &[("running", 7)]).await;
    task.hset("payload", &[("delayed", "1"), ("completed", "12"), ("failed", "1"), ("cancelled", "1")]).await;
    task.zadd("delayed", 9e12, "delayed").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
    }
    task.hset("attempt", &[("failed", "3")]).await;
    task.hset("stalledCount", &[("running", "1")]).await;
    // Results may be large, and are read separately.
    task.hset("result", &[("completed", "\"42\"")]).await;
    task.hset("error", &[("failed", "E")]).await;
    task.hset("snoozes", &[("waiting", "2:0")]).await;
    task.hset("options", &[("delayed", "{}")]).await;
    task.hset("maxCount", &[("delayed", "4")]).await;
    task.hset("priority", &[("delayed", "low")]).await;
    task.hset("dispatchedAt", &[("waiting", "77")]).await;
    task.hset("enqueuedAt", &[("waiting", "88")]).await;
    task.hset("recovery", &[("running", "silent w 5")]).await;
    task.hset("cancelling", &[("running", "why")]).await;
    let before = task.exact().await;
    for (id, reply) in [
        ("waiting", "[found waiting '' '' '' '' 2:0 '' '' '' 77 88 '' '' '' '' '' 0 2 0 0]"),
        ("delayed", "[found delayed 9000000000000 '' '' '' '' {} 4 low '' '' '' '' '' '' '' 0 1 0 0]"),
        ("running", "[found running w:7 '' 1 '' '' '' '' '' '' '' silent w 5 '' why '' '' 0 2 0 0]"),
        ("completed", "[found completed 1 '' '' '' '' '' '' '' '' '' '' '' '' '' '' 0 2 4 0]"),
        ("failed", "[found failed 1 3 '' E '' '' '' '' '' '' '' '' '' '' '' 0 1 0 0]"),
        ("cancelled", "[found cancelled 1 '' '' '' '' '' '' '' '' '' '' '' '' '' '' 0 1 0 0]"),
        ("nobody", "[unknown]"),
    ] {
        assert_eq!(task.ok("inspect", &[id]).await, reply);
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_job_that_was_claimed_ahead_is_claimed_until_it_begins() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    for (mark, state) in [("7", "claimed"), ("6", "running")] {
        task.hset("claimed", &[("a", mark)]).await;
        assert!(task.ok("inspect", &["a"]).await.starts_with(&format!("[found {state} w:7 ")), "{mark}");
    }
}

#[tokio::test]
async fn a_candidate_is_still_running_and_marked_as_candidate() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    task.snapshot().await;
    assert_eq!(
        task.ok("inspect", &["a"]).await,
        "[found running w:7 '' '' '' '' '' '' '' '' '' '' '' '' '' '' 1 2 0 0]"
    );
}
