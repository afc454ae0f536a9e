use redis::AsyncCommands;

use crate::scripts::call::{Task, assert_keys, assert_text, timeless};

#[tokio::test]
async fn an_unused_task_is_empty() {
    let mut task = Task::with("no meta").await;
    assert_eq!(
        timeless(&task.ok("overview", "").await),
        "[seen NOW [0 0 0 0 0 0 0 0] ['' '' '' '' '' '' '' ''] '' 0 0 [] 0 0 0 0 0 []]"
    );
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn one_call_returns_the_whole_summary() {
    let mut task = Task::with("no meta; waits n-1 n-2; payload h-1=1, l-1=1; wait:high h-1; wait:low l-1").await;
    task.write("enqueuedAt h-1=55, n-2=56; dispatchedAt h-1=44, n-1=45; delayed d-2=9e12, d-1=8e12").await;
    task.write("runs w: r-1=1, r-2=2; snapshot; runs w: r-3=3").await;
    for (place, ids) in [("completed", &["i"][..]), ("failed", &["j", "k"]), ("cancelled", &["l", "m", "n"])] {
        for id in ids {
            task.zadd(place, 1.0, id).await;
        }
    }
    task.write("failed late=9e12; completed lately-1=9e12, lately-2=9e12; parked r-1=1 running 5").await;
    task.write("meta paused=77").await;
    let reply = task.unchanged("overview", "").await;
    let heads = "[h-1 55 n-1 45 l-1 '' '' '']";
    assert_eq!(
        timeless(&reply),
        format!("[seen NOW [4 2 0 3 0 3 3 3] {heads} 8000000000000 2 1 [paused 77] 1 1 2 0 7 []]")
    );
}

#[tokio::test]
async fn the_first_job_of_a_list_is_the_first_that_waits() {
    let mut task = Task::with("waits first x y a").await;
    for id in ["x", "y"] {
        task.ok("cancel", &["why", "channel", "", id, ""]).await;
    }
    task.ok("settle", "1 w 1000 1 0 0").await;
    assert_keys!(task, "wait x y a");
    assert_text!(task.ok("overview", "").await, contains(" [1 0 0 1 0 0 0 2] ['' '' a '' '' '' '' ''] "));
}

#[tokio::test]
async fn the_first_job_is_found_if_its_id_has_an_extra_entry() {
    let mut task = Task::with("waits first a b").await;
    task.ok("remove", "- a -").await;
    task.ok("dispatch", "1 1 - a 1").await;
    task.ok("settle", "1 w 1000 1 0 0").await;
    assert_keys!(task, "wait a b a");
    assert_text!(task.ok("overview", "").await, contains(" [2 0 0 1 0 0 0 0] ['' '' a '' '' '' '' ''] "));
}

#[tokio::test]
async fn the_search_for_the_first_job_ends_after_600_tombstones() {
    for (count, first) in [(599, "a"), (600, "''")] {
        let mut task = Task::new().await;
        let ids: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        task.rpush("wait", &ids).await;
        let counted: Vec<(&str, &str)> = ids.iter().map(|id| (*id, "1")).collect();
        task.hset("tombstones", &counted).await;
        task.write(&format!("meta tombstones={count}; waits a")).await;
        assert_text!(
            task.ok("overview", "").await,
            contains(&format!(" [1 0 0 0 0 0 0 0] ['' '' {first} '' '' '' '' ''] "))
        );
    }
}

#[tokio::test]
async fn the_keys_of_waiting_jobs_are_counted_by_state() {
    let mut task = Task::with("no meta").await;
    let turns = task.key("turns");
    let scores = [(7.0, "a"), (5.0, "b"), (4e15 + 9.0, "c"), (6e15 + 8.0, "d"), (6e15 + 7.0, "e"), (6e15 + 9.0, "f")];
    let () = task.conn.zadd_multiple(&turns, &scores).await.unwrap();
    assert_text!(task.unchanged("overview", "").await, ends_with(" [2 1 3 7]]"));
    let () = task.conn.zrembyscore(&turns, 6e15, "+inf").await.unwrap();
    assert_text!(task.unchanged("overview", "").await, ends_with(" [2 1 0 '']]"));
}
