use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};
use crate::scripts::flow::{UNREADABLE, graph, line};

/// An instance `a` of three nodes in a row, the second one ready, which is to be looked at.
async fn ready() -> Task {
    let mut task = Task::running_flow(&line()).await;
    task.write("nodes a/0=c, a/1=p 0 0; value a/0=7; instances a=1 2 2 0 d -; outbox o a/1=5").await;
    task
}

/// An instance `a` of this many nodes, all of them ready.
async fn all_ready(count: usize) -> Task {
    let mut task = Task::running_flow(&graph("finish", "-", &vec!["p 0 1, - -"; count].join("; "))).await;
    task.write("outbox o a/1=5").await;
    task
}

#[tokio::test]
async fn ready_nodes_are_opened_and_the_others_stay() {
    let mut task = ready().await;
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]");
    assert_rest!(
        task,
        "meta, shapes, input, value",
        "instances a=1 2 2 1 d -; nodes a/0=c, a/1=o, a/2=p 1 1; outbox s a/1/1=NOW; running a=NOW"
    );
    assert_eq!(task.unchanged("flow_open", "a 1").await, "[opened 0 0]");
}

#[tokio::test]
async fn only_the_state_ready_is_changed() {
    let states = "o; o2; c; f; x; s; p 1 1; p 1 0; P 2 3; P 0 0; p 0 4; p 10 10";
    let nodes = states.replace(';', ", - -;") + ", - -";
    let mut task = Task::running_flow(&graph("finish", "-", &nodes)).await;
    task.write("instances a=1 0 8 2 d -; outbox o a/1=5").await;
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 9 1 t '' 0 here in-9 a 10 1 t '' 0 here in-10]");
    assert_keys!(task, "states a=o, o2, c, f, x, s, p 1 1, p 1 0, P 2 3, o, o, p 10 10; head a=1 0 8 4 d -");
}

#[tokio::test]
async fn each_call_looks_at_64_nodes_and_the_next_continues() {
    let mut task = all_ready(150).await;
    for (from, more, open) in [(0, 1, 64), (64, 1, 128), (128, 0, 150)] {
        let reply = task.ok("flow_open", "a 1").await;
        assert!(reply.starts_with(&format!("[opened {more} 0 a {from} 1 t '' 0 here in-{from} ")), "{}", &reply[..60]);
        assert_eq!(reply.matches(" here in-").count(), open - from);
        assert_keys!(task, format!("head a=1 0 150 {open} d -"));
        let cursor = if more == 1 { format!(r#"hash {{"a/1": "{open}"}}"#) } else { String::new() };
        assert_eq!(task.held("cursor").await, cursor);
        assert_eq!(task.held("outbox").await.contains("\"o a/1\""), more == 1);
    }
    assert_eq!(task.unchanged("flow_open", "a 1").await, "[opened 0 0]");
}

#[tokio::test]
async fn the_last_full_page_is_the_last_call() {
    let mut task = all_ready(128).await;
    assert!(task.ok("flow_open", "a 1").await.starts_with("[opened 1 0 a 0 "));
    assert!(task.ok("flow_open", "a 1").await.starts_with("[opened 0 0 a 64 "));
    assert_keys!(task, "no cursor");
}

#[tokio::test]
async fn outdated_entries_are_removed_and_nothing_else_is_written() {
    for change in [
        "stopping a=failed ",
        "instances a=2 2 2 0 d -",
        "no running; paused a=5",
        "no running; failed a=5",
        "no instances",
        "instances a=what",
        "no outbox",
    ] {
        let mut task = ready().await;
        task.write(&format!("cursor a/1=0; {change}")).await;
        let before = task.rest("outbox, cursor").await;
        assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0]", "{change}");
        assert_rest!(task, "", before, "{change}");
        assert_eq!(task.unchanged("flow_open", "a 1").await, "[opened 0 0]", "{change}");
    }
}

#[tokio::test]
async fn a_call_of_another_run_or_a_missing_instance_changes_nothing() {
    let mut task = ready().await;
    for words in ["a 0", "a 2", "a x", "absent 1", "a/1 1"] {
        assert_eq!(task.unchanged("flow_open", words).await, "[opened 0 0]", "{words}");
    }
}

#[tokio::test]
async fn an_unreadable_cursor_starts_at_the_front() {
    for cursor in ["", "x", "7", "-200", "200", "99999", "1e3", "0.5"] {
        let mut task = ready().await;
        task.hset("cursor", &[("a/1", cursor)]).await;
        assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]", "{cursor}");
        assert_keys!(task, "no cursor");
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
            task.lose(&format!("{key}.{field}")).await;
        }
        task.ok("flow_open", "a 1").await;
        if task.place("a").await == "running" {
            // The same call opened the node before it.
            assert_keys!(task, format!("stopping.a=failed {UNREADABLE}"), "{field} {value}");
            assert_keys!(task, "head a=1 2 2 1 d -");
            assert!(task.held("outbox").await.contains("x a/1"));
            assert_eq!(task.ok("flow_enter", "a 1 1").await, "[entered stale 0]");
        }
        assert_keys!(task, "place a=failed", "{field} {value}");
        assert_keys!(task, format!("error.a={UNREADABLE}; no outbox, cursor, stopping"));
        assert_eq!(task.unchanged("flow_open", "a 1").await, "[opened 0 0]");
    }
}

#[tokio::test]
async fn an_instance_that_stops_midway_leaves_no_cursor() {
    let mut task = all_ready(1_250).await;
    task.write("nodes a/60=what").await;
    let reply = task.ok("flow_open", "a 1").await;
    assert_eq!(reply.matches(" here in-").count(), 60);
    assert_keys!(task, "head a=1 0 1250 60 d -; no cursor");
    assert!(!task.held("outbox").await.contains("\"o a/1\""));
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = all_ready(3).await;
    let (large, most) = ("x".repeat(400 * 1024), "y".repeat(16 * 1024 - 2));
    task.hset("input", &[("a/0", &large), ("a/1", &most), ("a/2", "{}")]).await;
    let reply = task.ok("flow_open", "a 1").await.replace(&most, "MOST");
    assert_eq!(reply, "[opened 0 0 a 0 1 t '' 0 input a/0 409600 a 1 1 t '' 0 here MOST a 2 1 t '' 0 here {}]");
}

#[tokio::test]
async fn an_instance_that_ends_midway_leaves_no_cursor() {
    for end in ["cancel", "failure"] {
        let mut task = all_ready(700).await;
        assert_text!(task.ok("flow_open", "a 1").await, starts_with("[opened 1 0 a 0 1 "));
        if end == "cancel" {
            task.ok("flow_control", "a why").await;
        } else {
            task.write("stopping a=failed ").await;
        }
        let ends: Vec<String> = (0..64).map(|node| format!("a {node} 1 x -")).collect();
        task.ok("flow_advance", &ends.join(" ")).await;
        assert_keys!(task, "head a=1 1 636 0 d -");
        assert_keys!(task, "no outbox, cursor", "{end}");
    }
}
