use redis::AsyncCommands;

use crate::scripts::call::Task;

#[tokio::test]
async fn keys_are_listed_by_state_with_their_jobs() {
    let mut task = Task::new().await;
    assert_eq!(task.unchanged("lanes", "full 9").await, "[lanes 0 0 0 '']");
    task.write("meta perKey=2 0 0; laneOwn d=- - - 3 0 ada, f=1 0 0 1 9 ada").await;
    let [turns, lanes, held] = ["turns", "lanes", "laneHeld"].map(|name| task.key(name));
    let scores = [(7.0, "a"), (5.0, "b"), (4e15 + 9.0, "c"), (6e15 + 8.0, "d"), (6e15 + 7.0, "e")];
    let () = task.conn.zadd_multiple(&turns, &scores).await.unwrap();
    for entry in ["a\x002\0one", "a\x002\0other", "d\x002\0two"] {
        let () = task.conn.zadd(&lanes, entry, 0).await.unwrap();
    }
    let () = task.conn.zadd(&held, "d\0three", 0).await.unwrap();
    assert_eq!(task.unchanged("lanes", "ready 9").await, "[lanes 2 1 2 2 0 0 b 5 0 0 '' a 7 2 0 '']");
    assert_eq!(task.unchanged("lanes", "resting 9").await, "[lanes 2 1 2 2 0 0 c 4000000000000009 0 0 '']");
    let full = "[lanes 2 1 2 2 0 0 e 6000000000000007 0 0 '' d 6000000000000008 1 1 - - - 3 0 ada]";
    assert_eq!(task.unchanged("lanes", "full 9").await, full);
    assert_eq!(task.unchanged("lanes", "full 0").await, "[lanes 2 1 2 2 0 0]");
    let own = "[lanes 2 1 2 2 0 0 d 6000000000000008 1 1 - - - 3 0 ada f '' 0 0 1 0 0 1 9 ada]";
    assert_eq!(task.unchanged("lanes", "own 9").await, own);
    assert_eq!(task.unchanged("lanes", "own 0").await, "[lanes 2 1 2 2 0 0]");
}
