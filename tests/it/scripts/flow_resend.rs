use crate::scripts::call::{Task, without};
use crate::scripts::flow::{Node, graph, head, line, place, put, said, states, take_out};

async fn sent() -> Task {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task
}

#[tokio::test]
async fn an_open_node_is_sent_twice_more_and_then_reported_as_lost() {
    let mut task = sent().await;
    for time in 1..=2 {
        assert_eq!(said(&mut task, "flow_resend", "a 0 1").await, "[resent 0 a 0 1 t '' 0 here in-0]");
        assert_eq!(
            without(task.keys().await, &["meta", "shapes", "input"]),
            [
                r#"instances hash {"a": "1 0 3 1 d -"}"#.to_owned(),
                format!(r#"nodes hash {{"a/0": "o{time}", "a/1": "p 1 1", "a/2": "p 1 1"}}"#),
                r#"outbox zset ["s a/0/1": NOW]"#.to_owned(),
                r#"running zset ["a": 5]"#.to_owned(),
            ]
        );
        // While it still waits to be sent it is not listed, nor twice in one call.
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_resend", "a 0 1 a 0 1").await, "[resent 0]");
        assert_eq!(task.exact().await, before);
        assert_eq!(said(&mut task, "flow_enter", "a 0 1").await, "[entered go 0]");
        task.del("outbox").await;
    }
    let before = task.exact().await;
    for _ in 0..2 {
        assert_eq!(said(&mut task, "flow_resend", "a 0 1").await, "[resent 1 a/0/1]");
    }
    assert_eq!(task.exact().await, before);
    // Any outcome counts.
    said(&mut task, "flow_advance", "a 0 1 f lost").await;
    assert_eq!(states(&mut task, "a", 3).await, "f, s, s");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
}

#[tokio::test]
async fn a_node_that_is_not_open_in_this_run_is_left_alone() {
    let mut task = sent().await;
    for id in ["ended", "unreadable", "again"] {
        put(&mut task, &line(), id).await;
    }
    take_out(&mut task, "running", "ended").await;
    task.hset("instances", &[("unreadable", "1 0 3"), ("again", "2 1 3 1 d -")]).await;
    for state in ["c", "f", "x", "s", "p 0 0", "", "what", "out"] {
        task.hset("nodes", &[("a/1", state)]).await;
        let before = task.exact().await;
        let words = "a 1 1 a 2 1 a 9 1 a 0 2 a 0 0 ended 0 1 unreadable 0 1 again 0 1 nobody 0 1";
        assert_eq!(said(&mut task, "flow_resend", words).await, "[resent 0]", "{state}");
        assert_eq!(task.exact().await, before, "{state}");
    }
    assert_eq!(task.ok("flow_resend", &[]).await, "[resent 0]");
}

#[tokio::test]
async fn sent_nodes_of_a_paused_instance_are_sent_again() {
    let mut task = sent().await;
    task.del("running").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(said(&mut task, "flow_resend", "a 0 1").await, "[resent 0 a 0 1 t '' 0 here in-0]");
    assert_eq!(place(&mut task, "a").await, "paused");
}

#[tokio::test]
async fn nodes_of_a_stopping_or_unreadable_instance_are_lost() {
    for (key, field, value) in [
        ("stopping", "a", "failed "),
        ("stopping", "a", "cancelled why"),
        ("shapes", "d/0", ""),
        ("shapes", "d/0", "- -\n\n0"),
        ("input", "a/0", ""),
    ] {
        let mut task = sent().await;
        put(&mut task, &line(), "b").await;
        task.hset("nodes", &[("b/0", "c"), ("b/1", "o1")]).await;
        task.hset("value", &[("b/0", "7")]).await;
        task.hset(key, &[(field, value)]).await;
        // The others are still sent.
        let reply = said(&mut task, "flow_resend", "a 0 1 b 1 1").await;
        assert_eq!(reply, "[resent 1 a/0/1 b 1 1 t '' 0 here 7]", "{key} {value}");
        assert_eq!(task.field("nodes", "a/0").await, "o");
        assert_eq!(task.field("nodes", "b/1").await, "o2");
        assert_eq!(task.held("outbox").await, r#"zset ["s b/1/1": NOW]"#);
    }
}

#[tokio::test]
async fn two_hundred_nodes_are_sent_or_lost_in_one_call() {
    let mut task = Task::new().await;
    let nodes: Vec<Node> = (0..200).map(|_| ("p 0 0", "- -", &[][..])).collect();
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    let words: String = (0..200).map(|node| format!("a {node} 1 ")).collect();
    assert_eq!(said(&mut task, "flow_resend", &words).await.matches(" here in-").count(), 200);
    assert_eq!(task.held("nodes").await.matches(r#""o1""#).count(), 200);
    task.hset("stopping", &[("a", "failed ")]).await;
    task.del("outbox").await;
    let reply = said(&mut task, "flow_resend", &words).await;
    assert!(reply.starts_with("[resent 200 a/0/1 a/1/1 ") && reply.ends_with(" a/199/1]"));
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::new().await;
    let nodes: [Node; 2] = [("p 0 0", "- -", &[]), ("p 0 0", "- -", &[])];
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    let large = "x".repeat(9 * 1024);
    task.hset("input", &[("a/0", &large), ("a/1", &large)]).await;
    let reply = said(&mut task, "flow_resend", "a 0 1 a 1 1").await.replace(&large, "LARGE");
    assert_eq!(reply, "[resent 0 a 0 1 t '' 0 here LARGE a 1 1 t '' 0 input a/1 9216]");
}
