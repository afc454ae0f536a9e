use crate::scripts::call::{Task, without};
use crate::scripts::flow::{Node, UNREADABLE, graph, head, line, lose, place, put, said, states};

/// An instance `a` of three nodes in a row, the second one ready, which is to be looked at.
async fn ready() -> Task {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.hset("nodes", &[("a/0", "c"), ("a/1", "p 0 0")]).await;
    task.hset("value", &[("a/0", "7")]).await;
    task.hset("instances", &[("a", "1 2 2 0 d -")]).await;
    task.zadd("outbox", 5.0, "o a/1").await;
    task
}

/// An instance `a` of this many nodes, all of them ready.
async fn all_ready(count: usize) -> Task {
    let mut task = Task::new().await;
    let nodes: Vec<Node> = (0..count).map(|_| ("p 0 1", "- -", &[][..])).collect();
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.zadd("outbox", 5.0, "o a/1").await;
    task
}

#[tokio::test]
async fn ready_nodes_are_opened_and_the_others_stay() {
    let mut task = ready().await;
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "value"]),
        [
            r#"instances hash {"a": "1 2 2 1 d -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "o", "a/2": "p 1 1"}"#,
            r#"outbox zset ["s a/1/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
        ]
    );
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn only_the_state_ready_is_changed() {
    let mut task = Task::new().await;
    let all = ["o", "o2", "c", "f", "x", "s", "p 1 1", "p 1 0", "P 2 3", "P 0 0", "p 0 4", "p 10 10"];
    let nodes: Vec<Node> = all.iter().map(|state| (*state, "- -", &[][..])).collect();
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.hset("instances", &[("a", "1 0 8 2 d -")]).await;
    task.zadd("outbox", 5.0, "o a/1").await;
    let reply = said(&mut task, "flow_open", "a 1").await;
    assert_eq!(reply, "[opened 0 0 a 9 1 t '' 0 here in-9 a 10 1 t '' 0 here in-10]");
    assert_eq!(states(&mut task, "a", 12).await, "o, o2, c, f, x, s, p 1 1, p 1 0, P 2 3, o, o, p 10 10");
    assert_eq!(head(&mut task, "a").await, "1 0 8 4 d -");
}

#[tokio::test]
async fn each_call_looks_at_100_nodes_and_the_next_continues() {
    let mut task = all_ready(250).await;
    for (from, more, open) in [(0, 1, 100), (100, 1, 200), (200, 0, 250)] {
        let reply = said(&mut task, "flow_open", "a 1").await;
        assert!(reply.starts_with(&format!("[opened {more} 0 a {from} 1 t '' 0 here in-{from} ")), "{}", &reply[..60]);
        assert_eq!(reply.matches(" here in-").count(), open - from);
        assert_eq!(head(&mut task, "a").await, format!("1 0 250 {open} d -"));
        let cursor = if more == 1 { format!(r#"hash {{"a/1": "{open}"}}"#) } else { String::new() };
        assert_eq!(task.held("cursor").await, cursor);
        assert_eq!(task.held("outbox").await.contains("\"o a/1\""), more == 1);
    }
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn the_last_full_page_is_the_last_call() {
    let mut task = all_ready(200).await;
    assert!(said(&mut task, "flow_open", "a 1").await.starts_with("[opened 1 0 a 0 "));
    assert!(said(&mut task, "flow_open", "a 1").await.starts_with("[opened 0 0 a 100 "));
    assert_eq!(task.held("cursor").await, "");
}

#[tokio::test]
async fn outdated_entries_are_removed_and_nothing_else_is_written() {
    for change in ["stopping", "run", "paused", "ended", "unknown", "unreadable", "done"] {
        let mut task = ready().await;
        task.hset("cursor", &[("a/1", "0")]).await;
        match change {
            "stopping" => task.hset("stopping", &[("a", "failed ")]).await,
            "run" => task.hset("instances", &[("a", "2 2 2 0 d -")]).await,
            "paused" | "ended" => {
                task.del("running").await;
                task.zadd(if change == "paused" { "paused" } else { "failed" }, 5.0, "a").await;
            }
            "unknown" => task.del("instances").await,
            "unreadable" => task.hset("instances", &[("a", "what")]).await,
            _ => task.del("outbox").await,
        }
        let before = without(task.keys().await, &["outbox", "cursor"]);
        assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]", "{change}");
        assert_eq!(task.keys().await, before, "{change}");
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]", "{change}");
        assert_eq!(task.exact().await, before, "{change}");
    }
}

#[tokio::test]
async fn a_call_of_another_run_or_a_missing_instance_changes_nothing() {
    let mut task = ready().await;
    let before = task.exact().await;
    for words in ["a 0", "a 2", "a x", "nobody 1", "a/1 1"] {
        assert_eq!(said(&mut task, "flow_open", words).await, "[opened 0 0]", "{words}");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_unreadable_cursor_starts_at_the_front() {
    for cursor in ["", "x", "7", "-200", "200", "99999", "1e3", "0.5"] {
        let mut task = ready().await;
        task.hset("cursor", &[("a/1", cursor)]).await;
        assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]", "{cursor}");
        assert_eq!(task.held("cursor").await, "");
    }
}

#[tokio::test]
async fn unreadable_or_unsendable_nodes_end_an_idle_instance() {
    for (key, field, value) in [
        ("nodes", "a/1", "what"),
        ("nodes", "a/2", ""),
        ("nodes", "a/1", "p 0"),
        ("nodes", "a/1", "p zero 0"),
        ("shapes", "d/1", ""),
        ("shapes", "d/1", "- -\n\n0"),
        ("shapes", "d@", ""),
        ("shapes", "d@", "0 finish 2"),
        ("shapes", "d@", "999999999 finish 2"),
    ] {
        let mut task = ready().await;
        task.hset(key, &[(field, value)]).await;
        if value.is_empty() {
            lose(&mut task, key, field).await;
        }
        said(&mut task, "flow_open", "a 1").await;
        if place(&mut task, "a").await == "running" {
            // The same call opened the node before it.
            assert_eq!(task.field("stopping", "a").await, format!("failed {UNREADABLE}"), "{field} {value}");
            assert_eq!(head(&mut task, "a").await, "1 2 2 1 d -");
            assert!(task.held("outbox").await.contains("x a/1"));
            assert_eq!(said(&mut task, "flow_enter", "a 1 1").await, "[entered stale 0]");
        }
        assert_eq!(place(&mut task, "a").await, "failed", "{field} {value}");
        assert_eq!(task.field("error", "a").await, UNREADABLE);
        assert_eq!(task.held("outbox").await + &task.held("cursor").await + &task.held("stopping").await, "");
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn an_instance_that_stops_midway_leaves_no_cursor() {
    let mut task = all_ready(1_250).await;
    task.hset("nodes", &[("a/60", "what")]).await;
    let reply = said(&mut task, "flow_open", "a 1").await;
    assert_eq!(reply.matches(" here in-").count(), 60);
    assert_eq!(head(&mut task, "a").await, "1 0 1250 60 d -");
    assert_eq!(task.held("cursor").await, "");
    assert!(!task.held("outbox").await.contains("\"o a/1\""));
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = all_ready(3).await;
    let (large, most) = ("x".repeat(400 * 1024), "y".repeat(16 * 1024 - 2));
    task.hset("input", &[("a/0", &large), ("a/1", &most), ("a/2", "{}")]).await;
    let reply = said(&mut task, "flow_open", "a 1").await.replace(&most, "MOST");
    assert_eq!(reply, "[opened 0 0 a 0 1 t '' 0 input a/0 409600 a 1 1 t '' 0 here MOST a 2 1 t '' 0 here {}]");
}

#[tokio::test]
async fn an_instance_that_ends_midway_leaves_no_cursor() {
    for end in ["cancel", "failure"] {
        let mut task = all_ready(700).await;
        let reply = said(&mut task, "flow_open", "a 1").await;
        assert!(reply.starts_with("[opened 1 0 a 0 1 "));
        if end == "cancel" {
            task.ok("flow_control", &["a", "why"]).await;
        } else {
            task.hset("stopping", &[("a", "failed ")]).await;
        }
        let ends: Vec<String> = (0..100).map(|node| format!("a {node} 1 x -")).collect();
        said(&mut task, "flow_advance", &ends.join(" ")).await;
        assert_eq!(head(&mut task, "a").await, "1 1 600 0 d -");
        assert_eq!(task.held("outbox").await + &task.held("cursor").await, "", "{end}");
    }
}
