use std::time::Duration;

use redis::AsyncCommands;

use crate::scripts::call::{Task, assert_keys};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The rows of this time, by minute and by hour.
fn rows_at(ms: u64) -> [String; 2] {
    [format!("m{}", ms / MINUTE % 1440), format!("h{}", ms / HOUR % 720)]
}

/// The time, ms. Waits for the next minute if this one is nearly over, so that all calls of a test write the same rows.
async fn early_in_minute(task: &mut Task) -> u64 {
    loop {
        let now = task.now_ms().await as u64;
        if now % MINUTE < MINUTE - 5_000 {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The rows of the present, and what they hold: counters without their time, and durations.
async fn present(task: &mut Task) -> Vec<(String, String)> {
    let now = task.now_ms().await as u64;
    let mut found = Vec::new();
    for row in rows_at(now) {
        let counters = task.field("series", &row).await;
        let (at, counters) = counters.split_once(' ').unwrap();
        assert!(now - at.parse::<u64>().unwrap() < MINUTE);
        let durations = task.field("series", &format!("{row}d")).await;
        found.push((counters.to_owned(), durations));
    }
    found
}

#[tokio::test]
async fn counters_are_replaced_and_durations_are_added() {
    let mut task = Task::with("meta in=9, out=5, outFailed=1").await;
    let _ = early_in_minute(&mut task).await;
    assert_eq!(task.ok("series_add", "'w3 2 r10 1'").await, "[added]");
    task.write("meta in=12").await;
    assert_eq!(task.ok("series_add", "'w3 1 w0 4'").await, "[added]");
    assert_eq!(task.ok("series_add", "''").await, "[added]");
    let expected = ("12 5 1".to_owned(), "r10 1 w0 4 w3 3".to_owned());
    assert_eq!(present(&mut task).await, [expected.clone(), expected]);
}

#[tokio::test]
async fn a_row_of_an_earlier_day_is_used_again() {
    let mut task = Task::with("meta in=9").await;
    let now = early_in_minute(&mut task).await;
    let key = task.key("series");
    for (row, at) in rows_at(now).iter().zip([now - 24 * HOUR, now - 720 * HOUR]) {
        let _: () = task.conn.hset(&key, row, format!("{at} 3 2 1")).await.unwrap();
        let _: () = task.conn.hset(&key, format!("{row}d"), "r1 7").await.unwrap();
    }
    assert_eq!(task.ok("series_add", "'w2 1'").await, "[added]");
    let expected = ("9 0 0".to_owned(), "w2 1".to_owned());
    assert_eq!(present(&mut task).await, [expected.clone(), expected]);
    // An idle task has no durations.
    for row in rows_at(now) {
        let _: () = task.conn.hset(&key, row, format!("{} 3 2 1", now - 720 * HOUR)).await.unwrap();
    }
    assert_eq!(task.ok("series_add", "''").await, "[added]");
    for row in rows_at(now) {
        let has_durations: bool = task.conn.hexists(&key, format!("{row}d")).await.unwrap();
        assert!(!has_durations);
    }
}

#[tokio::test]
async fn a_task_without_data_gets_no_series() {
    let mut task = Task::with("no meta").await;
    assert_eq!(task.ok("series_add", "'w2 1'").await, "[unknown]");
    assert_keys!(task, "no series");
}
