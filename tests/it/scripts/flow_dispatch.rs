//! Nodes that are dispatched by the call that opens them (`lua/lib/flow_dispatch.lua`).

use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::{Graph, fan, line};

/// A running instance `a` of a workflow, and a task `t` that has declared its options.
async fn flow(graph: &Graph) -> Task {
    let mut task = Task::running_flow(graph).await;
    task.write("t:meta wire=1").await;
    task
}

#[tokio::test]
async fn an_opened_node_is_dispatched_and_an_ended_one_leaves_the_outbox_of_its_task() {
    let mut task = flow(&line()).await;
    task.write("outbox s a/0/1=5; t:outbox ~w/a/0/1=5, ~w/b/0/1=6").await;
    assert_eq!(task.ok_to("flow_advance", "a 0 1 c 7", 1).await, "[advanced 1 0]");
    assert_keys!(
        task,
        "nodes a/0=c, a/1=o, a/2=p 1 1; no outbox; t:wait ~w/a/1/1; t:payload ~w/a/1/1=7; \
         t:meta events=1, in=1, largest=1024, nodes=1, wire=1; t:wake marker=0, spare=1; t:outbox ~w/b/0/1=6"
    );
    let now = task.now_ms().await;
    let dispatched: f64 = task.field("t:dispatchedAt", "~w/a/1/1").await.parse().unwrap();
    assert!((now - 30_000.0..=now).contains(&dispatched), "{dispatched}");
    let event = task.held("t:events").await;
    assert!(event.contains("dispatched") && event.contains("~w/a/1/1"), "{event}");
    // The same end again changes nothing.
    assert_eq!(task.unchanged_to("flow_advance", "a 0 1 c 7", 1).await, "[advanced 0 0]");
    // A node without a value passes null, and the ends of another task leave this outbox alone.
    task.write("t:outbox ~w/a/1/1=5").await;
    assert_eq!(task.ok_to("flow_advance", "a 1 1 c -", 0).await, "[advanced 1 0]");
    assert_keys!(task, "t:payload ~w/a/1/1=7, ~w/a/2/1=null; t:outbox ~w/a/1/1=5, ~w/b/0/1=6");
}

#[tokio::test]
async fn a_node_that_ends_in_the_call_that_opens_it_is_not_dispatched() {
    let mut task = flow(&line()).await;
    assert_eq!(task.ok_to("flow_advance", "a 0 1 c 7 a 1 1 c 8", 2).await, "[advanced 1 0 a 1 1 t '' 0 here 7]");
    assert_keys!(task, "nodes a/0=c, a/1=c, a/2=o; t:wait ~w/a/2/1");
}

#[tokio::test]
async fn a_visit_dispatches_the_nodes_that_it_opens() {
    let mut task = flow(&fan(100)).await;
    assert_eq!(task.ok_to("flow_advance", "a 0 1 c -", 1).await, "[advanced 64 1 v a/0/1]");
    assert_eq!(task.ok_to("flow_visit", "a 0 1", 0).await, "[visited 36 0]");
    assert_eq!(task.unchanged_to("flow_visit", "a 0 1", 0).await, "[visited 0 0]");
    let waiting = task.list("t:wait").await;
    assert_eq!(waiting, (1..=100).map(|node| format!("~w/a/{node}/1")).collect::<Vec<_>>());
    assert_keys!(task, "no outbox, cursor; head a=1 0 100 100 d -");
    assert_eq!(task.field("t:payload", "~w/a/100/1").await, "in-100");
}

#[tokio::test]
async fn a_task_that_does_not_take_plain_jobs_gets_none() {
    for rows in [
        "no t:meta",
        "t:meta wire=2",
        "t:meta wire=1, partitions=2",
        "t:meta wire=1, priority=high",
        "t:payload ~w/a/1/1=old",
        "t:completed ~w/a/1/1=5",
        "t:failed ~w/a/1/1=5",
        "t:cancelled ~w/a/1/1=5",
        "instances a=1 0 3 1 d - 9000000000000",
        "shapes d/1=- 0 t\n{\"priority\":\"high\"}\n1 2",
        "shapes d/1=- 0 u\n\n1 2",
    ] {
        let mut task = flow(&line()).await;
        task.write(rows).await;
        let reply = task.ok_to("flow_advance", "a 0 1 c 7", 1).await;
        assert!(reply.starts_with("[advanced 0 0 a 1 1 "), "{rows}: {reply}");
        assert_keys!(task, "outbox s a/1/1=NOW; no t:wait", "{rows}");
    }
    for key in ["payload", "completed", "failed", "cancelled", "wait", "meta", "dispatchedAt"] {
        let mut task = flow(&line()).await;
        task.make_foreign(&format!("t:{key}")).await;
        let reply = task.ok_to("flow_advance", "a 0 1 c 7", 1).await;
        assert_eq!(reply, "[advanced 0 0 a 1 1 t '' 0 here 7]", "{key}");
        assert_keys!(task, "outbox s a/1/1=NOW", "{key}");
    }
}

#[tokio::test]
async fn a_foreign_outbox_or_wake_marker_of_a_task_undoes_nothing() {
    let mut task = flow(&line()).await;
    for key in ["t:outbox", "t:wake", "t:events"] {
        task.make_foreign(key).await;
    }
    assert_eq!(task.ok_to("flow_advance", "a 0 1 c 7", 1).await, "[advanced 1 0]");
    assert_keys!(task, "nodes a/0=c, a/1=o, a/2=p 1 1; t:wait ~w/a/1/1");
}

#[tokio::test]
async fn a_paused_task_gets_jobs_but_wakes_no_worker() {
    let mut task = flow(&line()).await;
    task.write("t:meta paused=5").await;
    assert_eq!(task.ok_to("flow_advance", "a 0 1 c 7", 1).await, "[advanced 1 0]");
    assert_keys!(task, "t:wait ~w/a/1/1; no t:wake");
}

#[tokio::test]
async fn nodes_that_open_in_an_instance_that_stops_are_not_dispatched() {
    // The graph cannot be read beyond the first dependent, so the instance stops after that one has opened.
    let mut task = flow(&fan(2)).await;
    task.write("no shapes.d/2").await;
    let reply = task.ok_to("flow_advance", "a 0 1 c -", 1).await;
    assert!(reply.starts_with("[advanced 0 1 x a/1 a 1 1 "), "{reply}");
    assert_keys!(task, "no t:wait, t:payload");
}

#[tokio::test]
async fn a_payload_over_the_limit_is_left_to_the_caller() {
    let mut task = flow(&line()).await;
    let large = "x".repeat(16 * 1024 + 1);
    let reply = task.ok_to("flow_advance", &["a", "0", "1", "c", &large], 1).await;
    assert_eq!(reply, "[advanced 0 0 a 1 1 t '' 0 value a/0 16385]");
    assert_keys!(task, "outbox s a/1/1=NOW; no t:wait");
    // All nodes of a call have 512 KiB together.
    let mut task = flow(&fan(40)).await;
    let inputs: Vec<(String, String)> = (1..=40).map(|node| (format!("a/{node}"), "x".repeat(16 * 1024))).collect();
    for (field, input) in &inputs {
        task.hset("input", &[(field, input)]).await;
    }
    let reply = task.ok_to("flow_advance", "a 0 1 c -", 1).await;
    assert!(reply.starts_with("[advanced 32 0 a 33 1 t "), "{}", &reply[..60]);
}
