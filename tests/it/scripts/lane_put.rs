use redis::AsyncCommands;

use crate::scripts::call::{Task, assert_keys};

#[tokio::test]
async fn settings_of_a_key_are_kept_until_they_are_those_of_the_task() {
    let mut task = Task::new().await;
    for (words, reply, stored) in [
        ("a limits '2 0 0' ada", "[put 0]", "a=2 0 0 1 0 ada"),
        ("a weight 3 'ada l.'", "[put 0]", "a=2 0 0 3 0 ada l."),
        ("a limits '- - -' ada", "[put 0]", "a=- - - 3 0 ada"),
        ("b reset '' ada", "[put 0]", "a=- - - 3 0 ada"),
    ] {
        assert_eq!(task.ok("lane_put", words).await, reply, "{words}");
        assert_keys!(task, &format!("laneOwn {stored}"));
    }
    assert_eq!(task.ok("lane_put", "a weight 1 ada").await, "[put 0]");
    assert_keys!(task, "no laneOwn");
}

#[tokio::test]
async fn a_pause_is_kept_until_it_is_ended() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("lane_put", "a pause '' ada").await, "[put 0]");
    let key = task.key("laneOwn");
    let stored: String = task.conn.hget(&key, "a").await.unwrap();
    assert!(stored.starts_with("- - - 1 1") && stored.ends_with(" ada"), "{stored}");
    assert_eq!(task.ok("lane_put", "a pause '' bob").await, "[put 1]");
    let again: String = task.conn.hget(&key, "a").await.unwrap();
    assert_eq!(again, stored.replace("ada", "bob"));
    assert_eq!(task.ok("lane_put", "a resume '' ada").await, "[put 1]");
    assert_eq!(task.ok("lane_put", "a resume '' ada").await, "[put 0]");
    assert_keys!(task, "no laneOwn");
}

#[tokio::test]
async fn a_key_that_was_full_or_gets_other_limits_is_looked_at_again() {
    let (full, rests) = (6e15 + 3.0, 4e15 + 9e12);
    for (score, change, turn) in [
        (full, "weight 2", 5.0),
        (full, "limits '1 0 0'", 5.0),
        (rests, "limits '1 0 0'", 5.0),
        (rests, "reset ''", 5.0),
        // A rest that a handler asked for stays.
        (rests, "weight 2", rests),
        (rests, "pause ''", rests),
        (3.0, "weight 2", 3.0),
    ] {
        let mut task = Task::with("meta turn=5").await;
        let (turns, wake) = (task.key("turns"), task.key("wake"));
        let () = task.conn.zadd(&turns, "a", score).await.unwrap();
        task.ok("lane_put", &format!("a {change} ada")).await;
        let found: (f64, bool) = (task.conn.zscore(&turns, "a").await.unwrap(), task.conn.exists(wake).await.unwrap());
        assert_eq!(found, (turn, turn != score), "{change} at {score}");
    }
}
