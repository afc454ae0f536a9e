use redis::AsyncCommands;

use crate::scripts::call::Task;

#[tokio::test]
async fn a_lane_is_read_with_the_holders_of_its_jobs() {
    let mut task = Task::new().await;
    assert_eq!(task.unchanged("lane_read", "a 9").await, "[lane '' 0 0 '' '' 0]");
    task.write("meta perKey=2 0 0; laneOwn a=- - - 3 0 ada; locks a1=w:7").await;
    let [turns, lanes, held] = ["turns", "lanes", "laneHeld"].map(|name| task.key(name));
    let () = task.conn.zadd_multiple(&turns, &[(7.0, "a"), (5.0, "b"), (5.0, "c")]).await.unwrap();
    for entry in ["a\x002\0one", "aa\x002\0other"] {
        let () = task.conn.zadd(&lanes, entry, 0).await.unwrap();
    }
    for entry in ["a\0a1", "a\0a2", "aa\0a3"] {
        let () = task.conn.zadd(&held, entry, 0).await.unwrap();
    }
    let read = "[lane 7 1 2 - - - 3 0 ada 2 0 0 2 a1 w:7 a2 '']";
    assert_eq!(task.unchanged("lane_read", "a 9").await, read);
    assert_eq!(task.unchanged("lane_read", "a 1").await, "[lane 7 1 2 - - - 3 0 ada 2 0 0 2 a1 w:7]");
    assert_eq!(task.unchanged("lane_read", "b 1").await, "[lane 5 0 0 '' 2 0 0 0]");
}
