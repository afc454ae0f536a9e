//! The events of a workflow.

use heartline::{
    Context, Graph, JobError, NodeState, OnFailure, Subscription, TaskDef, WorkflowEvent, WorkflowOptions,
    WorkflowState, WorkflowStep,
};

use crate::support::PATIENCE;
use crate::workflows::world::{TASK, World, single};

const GROWING: TaskDef<String, u64> = TaskDef::new("growing");

/// An event, short.
fn short(event: &WorkflowEvent) -> String {
    let WorkflowEvent { id, run, step, .. } = event;
    match step {
        WorkflowStep::Started => format!("{id} started {run}"),
        WorkflowStep::Node { node, state, .. } => format!("{id} {node} {state} {run}"),
        WorkflowStep::Ended { state, .. } => format!("{id} {state} {run}"),
        _ => format!("{id} {}", event.name()),
    }
}

/// The next events up to this one.
async fn up_to(events: &mut Subscription<WorkflowEvent>, last: &str) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().is_none_or(|event| event != last) {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await;
        told.push(short(&event.unwrap_or_else(|_| panic!("no event {last}: {told:?}")).unwrap()));
    }
    told
}

#[tokio::test]
async fn every_step_of_an_instance_has_one_event_in_order() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new().on_failure(OnFailure::Pause)).await;
    let mut events = flow.events();
    let worker = world.worker().await;
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 3".to_owned());
    let bad = graph.node("bad", &TASK, "fail".to_owned()).after(&first);
    let last = graph.node("last", &TASK, "sum".to_owned()).after(&bad);
    let behind = graph.node("behind", &TASK, "sum".to_owned()).after(&last);
    let handle = flow.start(graph.output(&behind)).id("one").await.unwrap();
    let told = up_to(&mut events, "one workflow:paused").await;
    let skipped = ["one 1 failed 1", "one 2 skipped 1", "one 3 skipped 1", "one workflow:paused"];
    assert_eq!(told, [&["one started 1", "one 0 completed 1"][..], &skipped].concat());
    assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
    let told = up_to(&mut events, "one workflow:paused").await;
    assert_eq!(told, ["one started 2", "one 1 failed 2", "one 2 skipped 2", "one 3 skipped 2", "one workflow:paused"]);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Failed);
    assert_eq!(up_to(&mut events, "one failed 2").await, ["one workflow:resumed", "one failed 2"]);

    // Another definition has its own events, and a second subscriber receives the same ones.
    let mut others = flow.events();
    let handle = flow.start(single("long", "wait")).id("two").await.unwrap();
    assert_eq!(up_to(&mut others, "two started 1").await, ["two started 1"]);
    handle.cancel("enough").await.unwrap();
    for events in [&mut events, &mut others] {
        let told = up_to(events, "two cancelled 1").await;
        assert_eq!(told[told.len() - 2..], ["two 0 cancelled 1", "two cancelled 1"]);
    }
    worker.stop().await;
}

#[tokio::test]
async fn the_events_of_a_returned_graph_precede_the_end_of_its_node() {
    let world = World::new();
    let app = world.app().await;
    let grow = |ctx: Context, _: String| async move {
        let more = Graph::new();
        let leaf = more.node("leaf", &TASK, "value 7".to_owned());
        ctx.expand(more.output(&leaf))?;
        Ok::<u64, JobError>(0)
    };
    app.task("growing", crate::workflows::world::options(), grow).unwrap();
    let grower = app.worker().spawn();
    let worker = world.worker().await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let mut events = flow.events();
    let graph = Graph::new();
    let first = graph.node("first", &GROWING, String::new());
    let handle = flow.start(graph.output(&first)).id("one").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 7);
    assert_eq!(
        up_to(&mut events, "one completed 1").await,
        [
            "one started 1",
            "one/0.1 started 1",
            "one/0.1 0 completed 1",
            "one 0 completed 1",
            "one/0.1 completed 1",
            "one completed 1",
        ]
    );
    assert!(matches!(handle.status().await.unwrap().nodes[0].state, NodeState::Completed));
    worker.stop().await;
    let _ = grower.stop().await.unwrap();
}
