use crate::scripts::call::Task;
use std::collections::BTreeSet;

/// The names in one reply, and the next cursor.
async fn scan(task: &mut Task, key: &'static str, cursor: &str, count: &str) -> (String, Vec<String>) {
    let reply = task.ok_at(key, "scan", &[cursor, count]).await;
    let (cursor, names) = reply.strip_prefix("[scanned ").unwrap().split_once(" [").unwrap();
    (cursor.to_owned(), names.trim_end_matches(']').split_whitespace().map(str::to_owned).collect())
}

#[tokio::test]
async fn fields_and_set_members_are_listed_without_values() {
    let mut task = Task::with("payload a=large, b=larger; active a b; delayed a=5, b=6").await;
    let before = task.exact().await;
    for key in ["payload", "active", "delayed"] {
        let (cursor, mut names) = scan(&mut task, key, "0", "100").await;
        names.sort();
        assert_eq!((cursor.as_str(), names), ("0", vec!["a".to_owned(), "b".to_owned()]), "{key}");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_list_a_string_and_a_missing_key_list_nothing() {
    let mut task = Task::with("wait a").await;
    let () = redis::AsyncCommands::set(&mut task.conn, task.prefix.clone() + "text", "a").await.unwrap();
    for key in ["wait", "text", "events"] {
        assert_eq!(task.ok_at(key, "scan", "0 100").await, "[scanned 0 []]", "{key}");
    }
}

#[tokio::test]
async fn many_names_are_listed_in_steps_and_each_at_least_once() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (0..2_000).map(|number| format!("job-{number}")).collect();
    for id in &ids {
        task.zadd("completed", 1.0, id).await;
    }
    task.sadd("active", &ids).await;
    let fields: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "1")).collect();
    task.hset("payload", &fields).await;
    for key in ["payload", "active", "completed"] {
        let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let (next, names) = scan(&mut task, key, &cursor, "100").await;
            assert!(names.len() < 400, "{} at once", names.len());
            seen.extend(names);
            (cursor, calls) = (next, calls + 1);
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 2_000, "{key}");
        assert!(calls > 5, "{calls} calls");
    }
}
