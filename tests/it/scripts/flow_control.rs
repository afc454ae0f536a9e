use crate::scripts::call::{Task, without};
use crate::scripts::flow::{head, line, place, put, said, states};

#[tokio::test]
async fn a_cancel_stops_a_running_instance_with_the_first_reason() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    assert_eq!(task.ok("flow_control", &["a", "too late\nfor it"]).await, "[stopping 1]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input"]),
        [
            r#"instances hash {"a": "1 0 3 1 d -"}"#,
            r#"nodes hash {"a/0": "o", "a/1": "p 1 1", "a/2": "p 1 1"}"#,
            r#"outbox zset ["x a/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
            r#"stopping hash {"a": "cancelled too late\nfor it"}"#,
        ]
    );
    // Also if the open nodes were cancelled and still run.
    let before = task.exact().await;
    for _ in 0..2 {
        assert_eq!(task.ok("flow_control", &["a", "another reason"]).await, "[stopping 1]");
    }
    assert_eq!(task.exact().await, before);
    said(&mut task, "flow_advance", "a 0 1 c 7").await;
    assert_eq!(task.field("error", "a").await, "too late\nfor it");
    let before = task.exact().await;
    assert_eq!(task.ok("flow_control", &["a", "another reason"]).await, "[ended cancelled 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_cancel_without_open_nodes_ends_the_instance_at_once() {
    // A running instance has a pending visit; a paused one opened nothing.
    for from in ["running", "paused"] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        task.hset("nodes", &[("a/0", "c"), ("a/1", "p 0 0")]).await;
        task.hset("instances", &[("a", "3 4 2 0 d -")]).await;
        task.del("running").await;
        task.zadd(from, 5.0, "a").await;
        assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[ended cancelled 0]");
        assert_eq!(place(&mut task, "a").await, "cancelled");
        let turn = if from == "running" { 5 } else { 6 };
        assert_eq!(head(&mut task, "a").await, format!("3 {turn} 2 0 d -"));
        assert_eq!(states(&mut task, "a", 3).await, "c, p 0 0, p 1 1");
        assert_eq!(task.held("error").await, r#"hash {"a": "why"}"#);
        assert_eq!(task.held("outbox").await + &task.held("stopping").await, "");
    }
}

#[tokio::test]
async fn a_paused_instance_with_open_nodes_runs_until_they_have_ended() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.del("running").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[stopping 1]");
    assert_eq!(place(&mut task, "a").await, "running");
    assert_eq!(head(&mut task, "a").await, "1 1 3 1 d -");
    said(&mut task, "flow_enter", "a 0 1").await;
    assert_eq!(place(&mut task, "a").await, "cancelled");
    assert_eq!(head(&mut task, "a").await, "1 2 2 0 d -");
}

#[tokio::test]
async fn a_cancel_takes_precedence_over_a_failure() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.hset("stopping", &[("a", "failed ")]).await;
    assert_eq!(task.ok("flow_control", &["a", ""]).await, "[stopping 1]");
    assert_eq!(task.field("stopping", "a").await, "cancelled ");
    said(&mut task, "flow_advance", "a 0 1 x -").await;
    assert_eq!(place(&mut task, "a").await, "cancelled");
    assert_eq!(task.held("error").await, "");
}

#[tokio::test]
async fn an_ended_instance_returns_its_place_a_missing_one_unknown() {
    let mut task = Task::new().await;
    for id in ["completed", "failed", "cancelled", "nowhere", "unreadable"] {
        put(&mut task, &line(), id).await;
        task.del("running").await;
    }
    for id in ["completed", "failed", "cancelled"] {
        task.zadd(id, 5.0, id).await;
    }
    task.hset("instances", &[("unreadable", "1 0")]).await;
    task.zadd("running", 5.0, "unreadable").await;
    let before = task.exact().await;
    for id in ["completed", "failed", "cancelled"] {
        assert_eq!(task.ok("flow_control", &[id, "why"]).await, format!("[ended {id} 0]"));
    }
    for id in ["nobody", "nowhere", "unreadable"] {
        assert_eq!(task.ok("flow_control", &[id, "why"]).await, "[unknown]");
    }
    assert_eq!(task.exact().await, before);
}
