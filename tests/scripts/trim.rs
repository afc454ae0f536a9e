use crate::call::{Task, without};

const COLUMNS: [&str; 9] =
    ["payload", "attempt", "stalledCount", "result", "error", "options", "maxCount", "priority", "dispatchedAt"];

/// Terminal jobs `old-1` .. `old-n` of 1970, and `young` of now, with every column.
async fn ended(place: &str, old: usize) -> Task {
    let mut task = Task::new().await;
    for i in 1..=old {
        task.zadd(place, i as f64, &format!("old-{i}")).await;
    }
    let now = task.now_ms().await;
    task.zadd(place, now, "young").await;
    for column in COLUMNS {
        for i in 1..=old {
            task.hset(column, &[(&format!("old-{i}"), "1")]).await;
        }
        task.hset(column, &[("young", "1")]).await;
    }
    task
}

fn keys_on(task: &Task, place: &'static str) -> Vec<&'static str> {
    let mut keys = task.script("trim").keys.clone();
    keys[0] = place;
    keys
}

#[tokio::test]
async fn what_is_too_old_goes_from_each_set_with_every_column() {
    for place in ["completed", "failed", "cancelled"] {
        let mut task = ended(place, 2).await;
        let keys = keys_on(&task, place);
        let reply = task.call_on("trim", &keys, &["w", "60000", "", "60000", "200"]).await.unwrap();
        assert_eq!(reply, "[trimmed 2]");
        let left = without(task.keys().await, &["meta", "events"]);
        assert_eq!(left.len(), 1 + COLUMNS.len(), "{left:?}");
        assert!(left.iter().all(|line| line.contains("young") && !line.contains("old")), "{left:?}");
        assert_eq!(
            task.held("events").await,
            r#"stream [NOW {"removed": "old-1 old-2", "total": "2", "worker": "w"}]"#
        );
    }
}

#[tokio::test]
async fn what_is_past_the_count_goes_oldest_first() {
    let mut task = ended("completed", 4).await;
    assert_eq!(task.ok("trim", &["w", "", "3", "60000", "200"]).await, "[trimmed 2]");
    assert_eq!(task.held("completed").await, r#"zset ["old-3": 3, "old-4": 4, "young": NOW]"#);
}

#[tokio::test]
async fn nothing_younger_than_the_least_age_goes_by_either_bound() {
    let mut task = ended("completed", 1).await;
    assert_eq!(task.ok("trim", &["w", "0", "0", "60000", "200"]).await, "[trimmed 1]");
    assert_eq!(task.held("completed").await, r#"zset ["young": NOW]"#);
    let before = task.exact().await;
    assert_eq!(task.ok("trim", &["w", "0", "0", "60000", "200"]).await, "[trimmed 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn one_call_removes_no_more_than_its_limit_and_the_next_goes_on() {
    let mut task = ended("completed", 5).await;
    for removed in [2, 2, 1, 0] {
        assert_eq!(task.ok("trim", &["w", "60000", "", "60000", "2"]).await, format!("[trimmed {removed}]"));
    }
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = ended("completed", 1).await;
    task.hset("meta", &[("eventMode", "off")]).await;
    assert_eq!(task.ok("trim", &["w", "60000", "", "60000", "200"]).await, "[trimmed 1]");
    assert_eq!(task.held("events").await, "");
}

#[tokio::test]
async fn an_empty_set_is_no_error() {
    let mut task = Task::new().await;
    let before = task.exact().await;
    assert_eq!(task.ok("trim", &["w", "60000", "10", "60000", "200"]).await, "[trimmed 0]");
    assert_eq!(task.exact().await, before);
}
