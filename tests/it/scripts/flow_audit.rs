use crate::scripts::call::Task;
use crate::scripts::flow::{line, lose, put, said, take_out};

/// Instances whose last steps were at these times.
async fn with(ids: &[(&str, &str, f64)]) -> Task {
    let mut task = Task::new().await;
    for (id, place, score) in ids {
        put(&mut task, &line(), id).await;
        take_out(&mut task, "running", id).await;
        task.zadd(place, *score, id).await;
    }
    task
}

#[tokio::test]
async fn idle_instances_are_listed_once_and_then_come_last() {
    let mut task = with(&[("old", "running", 7.0), ("older", "running", 5.0), ("held", "paused", 6.0)]).await;
    let young = task.now_ms().await - 1_000.0;
    put(&mut task, &line(), "young").await;
    task.zadd("running", young, "young").await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0 older old held]");
    assert_eq!(task.held("running").await, r#"zset ["young": NOW, "old": NOW, "older": NOW]"#);
    assert_eq!(task.held("paused").await, r#"zset ["held": NOW]"#);
    assert_eq!(task.score("running", "young").await, young);
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_call_lists_at_most_its_limit_and_then_the_others() {
    let mut task =
        with(&[("a", "running", 1.0), ("b", "running", 2.0), ("c", "running", 3.0), ("d", "paused", 1.0)]).await;
    assert_eq!(said(&mut task, "flow_audit", "60000 2").await, "[taken 1 a b]");
    assert_eq!(said(&mut task, "flow_audit", "60000 2").await, "[taken 1 c d]");
    assert_eq!(said(&mut task, "flow_audit", "60000 2").await, "[taken 0]");
}

#[tokio::test]
async fn paused_instances_get_their_turn_next_to_running_ones() {
    let mut task = with(&[("p", "paused", 9.0)]).await;
    for number in 0..30 {
        let id = format!("r{number}");
        put(&mut task, &line(), &id).await;
        task.zadd("running", f64::from(number), &id).await;
    }
    let taken = said(&mut task, "flow_audit", "60000 10").await;
    assert_eq!(taken, "[taken 1 r0 r1 r2 r3 r4 r5 r6 r7 r8 p]");
    let taken = said(&mut task, "flow_audit", "60000 10").await;
    assert!(taken.starts_with("[taken 1 r9 "), "{taken}");
}

#[tokio::test]
async fn paused_instances_without_open_nodes_are_not_listed() {
    let all = ["garbled", "gone", "none", "some"];
    let mut task = with(&all.map(|id| (id, "running", 5.0))).await;
    task.zadd("paused", 5.0, "halted").await;
    let head = [("none", "1 0 3 0 d -"), ("garbled", "1 0"), ("some", "1 0 3 12 d -"), ("halted", "1 0 3 0 d -")];
    task.hset("instances", &head).await;
    lose(&mut task, "instances", "gone").await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0 none some]");
    assert_eq!(task.held("running").await, r#"zset ["none": NOW, "some": NOW]"#);
    assert_eq!(task.held("paused").await, r#"zset ["halted": NOW]"#);
}

#[tokio::test]
async fn an_instance_with_an_unreadable_line_or_graph_has_failed() {
    let all = ["garbled", "gone", "graphless", "stops", "tail", "waits/0.1"];
    let mut task = with(&all.map(|id| (id, "running", 5.0))).await;
    task.zadd("paused", 5.0, "halted").await;
    let head = [
        ("garbled", "7 0"),
        ("graphless", "2 3 3 1 e -"),
        ("stops", "x y z"),
        ("tail", "3 1 3 1 d - 5 z"),
        ("halted", ""),
        ("waits/0.1", "x"),
    ];
    task.hset("instances", &head).await;
    task.hset("stopping", &[("stops", "cancelled why")]).await;
    lose(&mut task, "instances", "gone").await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0]");
    assert_eq!((task.held("running").await, task.held("paused").await), (String::new(), String::new()));
    let failed = r#"zset ["garbled": NOW, "gone": NOW, "graphless": NOW, "halted": NOW, "stops": NOW, "tail": NOW]"#;
    assert_eq!((task.held("failed").await.as_str(), task.held("stopping").await.as_str()), (failed, ""));
    for (id, line) in [("garbled", "7 1 0 0 - -"), ("gone", "1 1 0 0 - -"), ("graphless", "2 4 0 0 e -")] {
        assert_eq!(task.field("instances", id).await, line);
        assert!(task.field("error", id).await.contains(r#""code":"corrupt""#));
    }
    // The unreadable child is dropped: the audit of its parent finds it missing.
    assert!(!task.held("instances").await.contains("waits/0.1"));
    let told = task.events().await.concat();
    assert_eq!(task.field("meta", "corrupt").await, "7");
    assert!(task.field("meta", "corruptAt").await.parse::<f64>().unwrap() > 0.0);
    assert!(told.contains("ended failed garbled/7") && told.contains("failed stops/1"), "{told}");
}

#[tokio::test]
async fn ended_instances_are_not_listed_and_nothing_is_written() {
    let mut task = with(&[("a", "completed", 1.0), ("b", "failed", 1.0), ("c", "cancelled", 1.0)]).await;
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_audit", "0 200").await, "[taken 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_audit_changes_neither_the_graph_nor_its_nodes() {
    let mut task = with(&[("a", "running", 1.0)]).await;
    let before: Vec<_> = task.exact().await.into_iter().filter(|(key, _)| !key.ends_with(":running")).collect();
    said(&mut task, "flow_audit", "60000 200").await;
    let after: Vec<_> = task.exact().await.into_iter().filter(|(key, _)| !key.ends_with(":running")).collect();
    assert_eq!(after, before);
}

#[tokio::test]
async fn an_instance_whose_last_step_was_refused_midway_ends() {
    let mut task = with(&[("a", "running", 5.0)]).await;
    // The nodes and the head were written. Then the right to move the instance was missing.
    task.hset("nodes", &[("a/0", "c"), ("a/1", "c"), ("a/2", "c")]).await;
    task.hset("instances", &[("a", "1 3 0 0 d -")]).await;
    task.del("outbox").await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0 a]");
    assert_eq!(task.held("outbox").await, r#"zset ["o a/1": NOW]"#);
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.held("running").await, "");
    assert_eq!(task.held("completed").await, r#"zset ["a": NOW]"#);
}
