use crate::scripts::call::Task;
use crate::scripts::flow::{UNREADABLE, fan, graph, head, place, put, said};

/// An instance `a` with 100 of 150 dependents opened, or 100 of 190 skipped.
async fn begun(how: &str) -> Task {
    let mut task = Task::new().await;
    put(&mut task, &fan(if how == "c" { 150 } else { 190 }), "a").await;
    said(&mut task, "flow_advance", &format!("a 0 1 {how} -")).await;
    task
}

#[tokio::test]
async fn the_remaining_dependents_are_visited_once() {
    let mut task = begun("c").await;
    let reply = said(&mut task, "flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 0 a 101 1 t '' 0 here in-101 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 50);
    assert_eq!(head(&mut task, "a").await, "1 0 150 150 d -");
    assert_eq!(task.held("cursor").await, "");
    assert!(!task.held("outbox").await.contains("\"v "));
    // A late call has nothing to do.
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_visit_continues_in_the_middle_of_a_page_of_dependents() {
    let mut task = Task::new().await;
    put(&mut task, &fan(700), "a").await;
    task.hset("nodes", &[("a/0", "c")]).await;
    task.hset("instances", &[("a", "1 0 700 0 d -")]).await;
    task.hset("cursor", &[("a/0/1", "450 c")]).await;
    task.zadd("outbox", 5.0, "v a/0/1").await;
    let reply = said(&mut task, "flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 1 v a/0/1 a 451 1 "), "{}", &reply[..60]);
    assert_eq!(task.held("cursor").await, r#"hash {"a/0/1": "550 c"}"#);
    // It is due after what was found.
    assert!(task.score("outbox", "v a/0/1").await > 5.0);
    let reply = said(&mut task, "flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 1 v a/0/1 a 551 1 "), "{}", &reply[..60]);
    assert_eq!(head(&mut task, "a").await, "1 0 700 200 d -");
}

#[tokio::test]
async fn the_last_skipped_node_ends_the_instance() {
    let mut task = begun("f").await;
    assert_eq!(head(&mut task, "a").await, "1 0 90 0 d 0");
    assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
    assert_eq!(task.held("outbox").await + &task.held("cursor").await, "");
}

#[tokio::test]
async fn a_visit_of_a_stopped_instance_only_removes_its_entry() {
    for change in ["stopping", "run", "ended", "unknown", "unreadable"] {
        let mut task = begun("c").await;
        match change {
            "stopping" => task.hset("stopping", &[("a", "failed ")]).await,
            "run" => task.hset("instances", &[("a", "2 0 1750 1000 d -")]).await,
            "ended" => task.del("running").await,
            "unknown" => task.del("instances").await,
            _ => task.hset("instances", &[("a", "what")]).await,
        }
        let head = task.held("instances").await;
        let nodes = task.held("nodes").await;
        assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]", "{change}");
        assert_eq!(task.held("cursor").await, "", "{change}");
        assert!(!task.held("outbox").await.contains("\"v "), "{change}");
        assert_eq!((task.held("instances").await, task.held("nodes").await), (head, nodes), "{change}");
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]", "{change}");
        assert_eq!(task.exact().await, before, "{change}");
    }
}

#[tokio::test]
async fn a_visit_without_an_entry_changes_nothing() {
    let mut task = Task::new().await;
    put(&mut task, &fan(3), "a").await;
    let before = task.exact().await;
    for words in ["a 0 1", "a 0 2", "a 9 1", "nobody 0 1"] {
        assert_eq!(said(&mut task, "flow_visit", words).await, "[visited 0]");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_unreadable_cursor_ends_the_instance_as_failed() {
    for cursor in ["", "1000", "ten c", "1000 x"] {
        let mut task = begun("f").await;
        task.hset("cursor", &[("a/0/1", cursor)]).await;
        if cursor.is_empty() {
            task.del("cursor").await;
        }
        assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]", "{cursor}");
        assert_eq!(place(&mut task, "a").await, "failed", "{cursor}");
        assert_eq!(task.field("error", "a").await, UNREADABLE);
        assert_eq!(task.held("cursor").await + &task.held("outbox").await, "");
    }
}

#[tokio::test]
async fn a_paused_instance_is_visited_and_opens_nothing() {
    let nodes: [(&str, &str, &[usize]); 3] = [("p 0 0", "- -", &[1, 2]), ("p 1 1", "- -", &[]), ("p 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.del("running").await;
    task.zadd("paused", 5.0, "a").await;
    task.hset("nodes", &[("a/0", "c")]).await;
    task.hset("cursor", &[("a/0/1", "1 c")]).await;
    assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]");
    assert_eq!(task.held("nodes").await, r#"hash {"a/0": "c", "a/1": "p 1 1", "a/2": "p 0 0"}"#);
    assert_eq!(task.held("paused").await, r#"zset ["a": 5]"#);
    assert_eq!(task.held("running").await, "");
}
