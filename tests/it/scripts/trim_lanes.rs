use redis::AsyncCommands;

use crate::scripts::call::{Task, assert_keys};

#[tokio::test]
async fn keys_and_starts_of_jobs_that_are_gone_are_removed() {
    let mut task = Task::with(
        "waits kept; laneOf gone=a, kept=b; laneStarts a=5 1 5 1|, b=5 9000000000000000 5 9000000000000000|",
    )
    .await;
    task.write("meta perKey=0 5 60000000").await;
    assert_eq!(task.ok("trim_lanes", "laneOf - 500").await, "[trimmed '' 2 1]");
    assert_eq!(task.ok("trim_lanes", "laneStarts - 500").await, "[trimmed '' 2 1]");
    assert_keys!(task, "laneOf kept=b; laneStarts b=5 9000000000000000 5 9000000000000000|");
    assert_eq!(task.unchanged("trim_lanes", "laneOf - 500").await, "[trimmed '' 1 0]");
    task.write("laneStarts a=5 1 5 1|, c=5 1 5 1|; laneOwn a=0 5 9000000000000000 1 0 ada, c=- - - 2 0 ada").await;
    assert_eq!(task.ok("trim_lanes", "laneStarts - 500").await, "[trimmed '' 3 1]", "a has a longer window");
}

#[tokio::test]
async fn slots_of_lost_locks_are_given_back() {
    let mut task = Task::with("runs w: held=5").await;
    let (held, turns) = (task.key("laneHeld"), task.key("turns"));
    for entry in ["a\0held", "b\0lost", "c\0other"] {
        let () = task.conn.zadd(&held, entry, 0).await.unwrap();
    }
    let () = task.conn.zadd_multiple(&turns, &[(6e15, "b"), (7.0, "c")]).await.unwrap();
    assert_eq!(task.ok("trim_lanes", "laneHeld - 2").await, "[trimmed kb\0lost 2 1]");
    assert_eq!(task.ok("trim_lanes", &["laneHeld", "kb\0lost", "2"]).await, "[trimmed '' 1 1]");
    let left: Vec<String> = task.conn.zrange(held, 0, -1).await.unwrap();
    assert_eq!(left, ["a\0held"]);
    assert_keys!(task, "turns zset b=0, c=7; wake marker=0, spare=1");
}

#[tokio::test]
async fn each_key_with_waiting_jobs_gets_its_turn() {
    let mut task = Task::with("meta turn=5").await;
    let (lanes, turns) = (task.key("lanes"), task.key("turns"));
    for entry in ["a\x002\0one", "a\x002\0other", "b\x002\0two", "c\x002\0three"] {
        let () = task.conn.zadd(&lanes, entry, 0).await.unwrap();
    }
    let () = task.conn.zadd(&turns, "b", 6e15).await.unwrap();
    let () = task.conn.zadd(task.key("laneHeld"), "b\0held", 0).await.unwrap();
    assert_eq!(task.ok("trim_lanes", "lanes - 2").await, "[trimmed kb 2 2]", "the flag was lost, too");
    assert_eq!(task.ok("trim_lanes", "lanes kb 2").await, "[trimmed '' 1 1]");
    assert_keys!(task, "meta.keyed=1; turns zset a=5, c=5, b=6000000000000000; wake marker=0, spare=1");
    assert_eq!(task.unchanged("trim_lanes", "lanes - 500").await, "[trimmed '' 3 0]");
}

#[tokio::test]
async fn a_full_key_whose_slots_were_lost_gets_its_turn() {
    let mut task = Task::with("meta turn=5").await;
    let (lanes, turns, held) = (task.key("lanes"), task.key("turns"), task.key("laneHeld"));
    for entry in ["a\x002\0one", "b\x002\0two"] {
        let () = task.conn.zadd(&lanes, entry, 0).await.unwrap();
    }
    let () = task.conn.zadd_multiple(&turns, &[(6e15, "a"), (6e15, "b")]).await.unwrap();
    let () = task.conn.zadd(held, "b\0held", 0).await.unwrap();
    task.write("meta keyed=1; laneOwn c=- - - 1 7 ada, a=- - - 2 0 ada").await;
    // A paused key stays full.
    let () = task.conn.zadd(&lanes, "c\x002\0three", 0).await.unwrap();
    let () = task.conn.zadd(&turns, "c", 6e15 + 7.0).await.unwrap();
    assert_eq!(task.ok("trim_lanes", "lanes - 500").await, "[trimmed '' 3 1]");
    assert_keys!(task, "turns zset a=5, b=6000000000000000, c=6000000000000007; wake marker=0, spare=1");
    assert_eq!(task.unchanged("trim_lanes", "lanes - 500").await, "[trimmed '' 3 0]");
}
