use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::line;

/// Instances whose last steps were at these times.
async fn with(ids: &[(&str, &str, f64)]) -> Task {
    let mut task = Task::new().await;
    for (id, place, score) in ids {
        task.put(&line(), id).await;
        task.lose(&format!("running.{id}")).await;
        task.zadd(place, *score, id).await;
    }
    task
}

#[tokio::test]
async fn idle_instances_are_listed_once_and_then_come_last() {
    let mut task = with(&[("old", "running", 7.0), ("older", "running", 5.0), ("held", "paused", 6.0)]).await;
    let young = task.now_ms().await - 1_000.0;
    task.put(&line(), "young").await;
    task.zadd("running", young, "young").await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 older old held]");
    assert_keys!(task, "running young=NOW, old=NOW, older=NOW; paused held=NOW");
    assert_eq!(task.score("running", "young").await, young);
    assert_eq!(task.unchanged("flow_audit", "60000 200").await, "[taken 0]");
}

#[tokio::test]
async fn a_call_lists_at_most_its_limit_and_then_the_others() {
    let mut task =
        with(&[("a", "running", 1.0), ("b", "running", 2.0), ("c", "running", 3.0), ("d", "paused", 1.0)]).await;
    assert_eq!(task.ok("flow_audit", "60000 2").await, "[taken 1 a b]");
    assert_eq!(task.ok("flow_audit", "60000 2").await, "[taken 1 c d]");
    assert_eq!(task.ok("flow_audit", "60000 2").await, "[taken 0]");
}

#[tokio::test]
async fn paused_instances_get_their_turn_next_to_running_ones() {
    let mut task = with(&[("p", "paused", 9.0)]).await;
    for number in 0..30 {
        let id = format!("r{number}");
        task.put(&line(), &id).await;
        task.zadd("running", f64::from(number), &id).await;
    }
    let taken = task.ok("flow_audit", "60000 10").await;
    assert_eq!(taken, "[taken 1 r0 r1 r2 r3 r4 r5 r6 r7 r8 p]");
    let taken = task.ok("flow_audit", "60000 10").await;
    assert!(taken.starts_with("[taken 1 r9 "), "{taken}");
}

#[tokio::test]
async fn paused_instances_without_open_nodes_are_not_listed() {
    let all = ["garbled", "gone", "none", "some"];
    let mut task = with(&all.map(|id| (id, "running", 5.0))).await;
    task.write("paused halted=5").await;
    task.write("instances none=1 0 3 0 d -, garbled=1 0, some=1 0 3 12 d -, halted=1 0 3 0 d -").await;
    task.write("no instances.gone").await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 none some]");
    assert_keys!(task, "running none=NOW, some=NOW; paused halted=NOW");
}

#[tokio::test]
async fn an_instance_with_an_unreadable_line_or_graph_has_failed() {
    let all = ["garbled", "gone", "graphless", "stops", "tail", "waits/0.1"];
    let mut task = with(&all.map(|id| (id, "running", 5.0))).await;
    task.write("paused halted=5").await;
    task.write("instances garbled=7 0, graphless=2 3 3 1 e -, stops=x y z, tail=3 1 3 1 d - 5 z, halted=").await;
    task.write("instances waits/0.1=x; stopping stops=cancelled why; no instances.gone").await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0]");
    assert_keys!(task, "failed garbled=NOW, gone=NOW, graphless=NOW, halted=NOW, stops=NOW, tail=NOW");
    assert_keys!(task, "no running, paused, stopping");
    for (id, line) in [("garbled", "7 1 0 0 - -"), ("gone", "1 1 0 0 - -"), ("graphless", "2 4 0 0 e -")] {
        assert_eq!(task.field("instances", id).await, line);
        assert!(task.field("error", id).await.contains(r#""code":"corrupt""#));
    }
    // The unreadable child is dropped: the audit of its parent finds it missing.
    assert!(!task.held("instances").await.contains("waits/0.1"));
    let told = task.events().await.concat();
    assert_keys!(task, "meta.corrupt=7");
    assert!(task.field("meta", "corruptAt").await.parse::<f64>().unwrap() > 0.0);
    assert!(told.contains("ended failed garbled/7") && told.contains("failed stops/1"), "{told}");
}

#[tokio::test]
async fn ended_instances_are_not_listed_and_nothing_is_written() {
    let mut task = with(&[("a", "completed", 1.0), ("b", "failed", 1.0), ("c", "cancelled", 1.0)]).await;
    assert_eq!(task.unchanged("flow_audit", "0 200").await, "[taken 0]");
}

#[tokio::test]
async fn an_audit_changes_neither_the_graph_nor_its_nodes() {
    let mut task = with(&[("a", "running", 1.0)]).await;
    let before: Vec<_> = task.exact().await.into_iter().filter(|(key, _)| !key.ends_with(":running")).collect();
    task.ok("flow_audit", "60000 200").await;
    let after: Vec<_> = task.exact().await.into_iter().filter(|(key, _)| !key.ends_with(":running")).collect();
    assert_eq!(after, before);
}

#[tokio::test]
async fn an_instance_whose_last_step_was_refused_midway_ends() {
    let mut task = with(&[("a", "running", 5.0)]).await;
    // The nodes and the head were written. Then the right to move the instance was missing.
    task.write("nodes a/0=c, a/1=c, a/2=c; instances a=1 3 0 0 d -; no outbox").await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 a]");
    assert_keys!(task, "outbox o a/1=NOW");
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0]");
    assert_keys!(task, "no running; completed a=NOW");
}
