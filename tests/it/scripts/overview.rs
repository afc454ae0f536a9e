use crate::scripts::call::{Task, timeless};

#[tokio::test]
async fn an_unused_task_is_empty() {
    let mut task = Task::new().await;
    task.del("meta").await;
    assert_eq!(
        timeless(&task.ok("overview", &[]).await),
        "[seen NOW [0 0 0 0 0 0 0 0] ['' '' '' '' '' ''] '' 0 0 [] 0 0 0 0 0]"
    );
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn one_call_returns_the_whole_summary() {
    let mut task = Task::new().await;
    task.del("meta").await;
    task.waiting(&["n-1", "n-2"]).await;
    task.hset("payload", &[("h-1", "1"), ("l-1", "1")]).await;
    task.rpush("wait:high", &["h-1"]).await;
    task.rpush("wait:low", &["l-1"]).await;
    task.hset("enqueuedAt", &[("h-1", "55"), ("n-2", "56")]).await;
    task.hset("dispatchedAt", &[("h-1", "44"), ("n-1", "45")]).await;
    task.zadd("delayed", 9e12, "d-2").await;
    task.zadd("delayed", 8e12, "d-1").await;
    task.running("w", &[("r-1", 1), ("r-2", 2)]).await;
    task.snapshot().await;
    task.running("w", &[("r-3", 3)]).await;
    for (place, ids) in [("completed", &["i"][..]), ("failed", &["j", "k"]), ("cancelled", &["l", "m", "n"])] {
        for id in ids {
            task.zadd(place, 1.0, id).await;
        }
    }
    task.zadd("failed", 9e12, "late").await;
    task.zadd("completed", 9e12, "lately-1").await;
    task.zadd("completed", 9e12, "lately-2").await;
    task.hset("parked", &[("r-1", "1 running 5")]).await;
    task.hset("meta", &[("paused", "77")]).await;
    let before = task.exact().await;
    let reply = task.ok("overview", &[]).await;
    let heads = "[h-1 55 n-1 45 l-1 '']";
    assert_eq!(
        timeless(&reply),
        format!("[seen NOW [4 2 0 3 0 3 3 3] {heads} 8000000000000 2 1 [paused 77] 1 1 2 0 7]")
    );
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn the_first_job_of_a_list_is_the_first_that_waits() {
    let mut task = Task::new().await;
    task.waiting(&["first", "x", "y", "a"]).await;
    for id in ["x", "y"] {
        task.ok("cancel", &["why", "channel", "", id, ""]).await;
    }
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    assert_eq!(task.list("wait").await, ["x", "y", "a"]);
    let reply = task.ok("overview", &[]).await;
    assert!(reply.contains(" [1 0 0 1 0 0 0 2] ['' '' a '' '' ''] "), "{reply}");
}

#[tokio::test]
async fn the_first_job_is_found_if_its_id_has_an_extra_entry() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    task.ok("remove", &["", "a", ""]).await;
    task.ok("dispatch", &["1", "1", "1", "a", "1"]).await;
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    assert_eq!(task.list("wait").await, ["a", "b", "a"]);
    let reply = task.ok("overview", &[]).await;
    assert!(reply.contains(" [2 0 0 1 0 0 0 0] ['' '' a '' '' ''] "), "{reply}");
}

#[tokio::test]
async fn with_600_tombstones_in_front_no_first_job_is_looked_for() {
    for (count, first) in [(599, "a"), (600, "''")] {
        let mut task = Task::new().await;
        let ids: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        task.rpush("wait", &ids).await;
        let counted: Vec<(&str, &str)> = ids.iter().map(|id| (*id, "1")).collect();
        task.hset("tombstones", &counted).await;
        task.hset("meta", &[("tombstones", &count.to_string())]).await;
        task.waiting(&["a"]).await;
        let reply = task.ok("overview", &[]).await;
        assert!(reply.contains(&format!(" [1 0 0 0 0 0 0 0] ['' '' {first} '' '' ''] ")), "{reply}");
    }
}
