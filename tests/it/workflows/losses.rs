//! One of two tables goes back in time, as a slot does if its new primary lacks the last writes.

use std::time::Duration;

use heartline::{Graph, WorkflowHandle, WorkflowOptions, WorkflowState};
use redis::AsyncCommands;

use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{TASK, WORK, World};

/// All keys with a hash tag, dumped.
async fn dump(world: &World, tag: &str) -> Vec<(String, Vec<u8>)> {
    let mut conn = world.redis.conn().await;
    let keys: Vec<String> = conn.keys(format!("{}:{{{tag}}}:*", world.prefix)).await.unwrap();
    let mut found = Vec::new();
    for key in keys {
        let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut conn).await.unwrap();
        found.push((key, value));
    }
    found
}

/// Restores them in one step.
async fn go_back(world: &World, tag: &str, before: &[(String, Vec<u8>)]) {
    let mut conn = world.redis.conn().await;
    let now: Vec<String> = conn.keys(format!("{}:{{{tag}}}:*", world.prefix)).await.unwrap();
    let mut pipe = redis::pipe();
    pipe.atomic().del(now).ignore();
    for (key, value) in before {
        pipe.cmd("RESTORE").arg(key).arg(0).arg(value).ignore();
    }
    let () = pipe.query_async(&mut conn).await.unwrap();
}

/// Looks at workflows again and again, as workers do every few seconds, with their audits of every minute.
async fn ends(world: &World, handle: &WorkflowHandle<u64>) {
    let app = world.app().await;
    eventually("it ends", PATIENCE * 2, async || {
        app.recover_stuck_workflows().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        handle.status().await.unwrap().state == WorkflowState::Completed
    })
    .await;
}

/// A row of four nodes. The third has not begun: its input is delayed.
async fn line(world: &World) -> WorkflowHandle<u64> {
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 1".to_owned());
    let second = graph.node("second", &TASK, "sum".to_owned()).after(&first);
    let third = graph.node("third", &TASK, "sum".to_owned()).after(&second).delay(Duration::from_secs(3));
    let last = graph.node("last", &TASK, "sum".to_owned()).after(&third);
    flow.start(graph.output(&last)).id("one").await.unwrap()
}

#[tokio::test]
async fn instances_in_no_place_are_reported_and_paused_for_a_person() {
    let world = World::new();
    let worker = world.worker().await;
    let handle = line(&world).await;
    left(&handle, 2).await;
    let (mut conn, inspector) = (world.redis.conn().await, world.app().await.inspector());
    let () = conn.del(world.flow_key("running")).await.unwrap();
    assert_eq!(inspector.workflows().await.unwrap()[0].unplaced, 1);
    let found = inspector.instance("flow", "one", 0).await.unwrap().unwrap();
    assert!(found.is_unplaced && found.message.unwrap().contains("flows recover"));
    assert!(found.nodes.iter().filter_map(|node| node.why.as_ref()).all(|why| why.contains("flows recover")));
    // The list of workflows does not have it any more either.
    let () = conn.del(format!("{}:workflows", world.prefix)).await.unwrap();
    assert_eq!(inspector.recover_workflow("nothing").await.unwrap(), None);
    let recovered = inspector.recover_workflow("flow").await.unwrap().unwrap();
    assert_eq!((recovered.placed, recovered.fault), (1, None));
    let flow = &inspector.workflows().await.unwrap()[0];
    assert_eq!((&*flow.workflow, flow.paused, flow.unplaced), ("flow", 1, 0));
    handle.resume().await.unwrap();
    ends(&world, &handle).await;
    assert_eq!(handle.result().await.unwrap(), 1);
    worker.stop().await;
}

/// Waits until this many nodes have not ended.
async fn left(handle: &WorkflowHandle<u64>, nodes: u64) {
    eventually("this many are left", PATIENCE, async || handle.status().await.unwrap().unfinished == nodes).await;
}

#[tokio::test]
async fn a_workflow_that_goes_back_in_time_runs_nothing_twice() {
    let world = World::new();
    let handle = line(&world).await;
    let before = dump(&world, "flow:flow").await;
    let worker = world.worker().await;
    left(&handle, 2).await;
    // It has no record of the two completed nodes, or of the third, which was sent.
    go_back(&world, "flow:flow", &before).await;
    assert_eq!(handle.status().await.unwrap().unfinished, 4);
    ends(&world, &handle).await;
    assert_eq!((handle.result().await.unwrap(), world.began()), (1, vec![0, 1, 2, 3]));
    worker.stop().await;
}

#[tokio::test]
async fn a_task_that_goes_back_in_time_repeats_and_loses_no_node() {
    let world = World::new();
    let handle = line(&world).await;
    let before = dump(&world, WORK).await;
    let worker = world.worker().await;
    left(&handle, 2).await;
    worker.stop().await;
    // The first job waits again, and the third one is gone.
    go_back(&world, WORK, &before).await;
    let worker = world.worker().await;
    ends(&world, &handle).await;
    assert_eq!((handle.result().await.unwrap(), world.began()), (1, vec![0, 1, 2, 3]));
    eventually("nothing is left to do", PATIENCE, async || {
        world.app().await.task_ref_for(&TASK).unwrap().counts().await.unwrap().pending_total() == 0
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_nested_graph_is_started_again() {
    let (world, flow, _) = World::with_flow().await;
    let (graph, child) = (Graph::new(), Graph::new());
    let first = graph.node("first", &TASK, "value 1".to_owned());
    let inner = child.node("inner", &TASK, "value 7".to_owned());
    let child = graph.subgraph("child", child.output(&inner)).after(&first);
    let handle = flow.start(graph.output(&child)).id("one").await.unwrap();
    let before = dump(&world, "flow:flow").await;
    let worker = world.worker().await;
    handle.result().await.unwrap();
    go_back(&world, "flow:flow", &before).await;
    ends(&world, &handle).await;
    // Its job is the same one, and has its value.
    assert_eq!((handle.result().await.unwrap(), world.began()), (7, vec![0, 0]));
    worker.stop().await;
}

#[tokio::test]
async fn an_instance_with_damaged_ended_nodes_ends_as_corrupt() {
    let world = World::alone();
    let worker = world.worker().await;
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let app = world.app().await;
    let graph = Graph::new();
    graph.node("ended", &TASK, "value 1".to_owned());
    graph.node("runs", &TASK, "wait".to_owned());
    let last = graph.node("last", &TASK, "value 2".to_owned());
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    eventually("two have ended", PATIENCE, async || handle.status().await.unwrap().unfinished == 1).await;
    let mut conn = world.redis.conn().await;
    let nodes = world.flow_key("nodes");
    let () = conn.hset_multiple(&nodes, &[("one/0", "zz"), ("one/1", "zz")]).await.unwrap();
    let report = app.inspector().instance("flow", "one", 0).await.unwrap().unwrap();
    let why = report.nodes[0].why.as_deref().unwrap_or_default();
    assert!(why.starts_with("its state cannot be read, so it ends as corrupt"), "{report:?}");
    tasks.handle("~flow/one/1/1").unwrap().cancel("enough").await.unwrap();
    // As a worker does for an instance without steps for two minutes.
    eventually("it failed", PATIENCE, async || {
        app.recover_stuck_workflows().await.unwrap();
        handle.status().await.unwrap().state == WorkflowState::Failed
    })
    .await;
    let report = app.inspector().instance("flow", "one", 0).await.unwrap().unwrap();
    assert_eq!(report.code.as_deref(), Some("corrupt"), "{report:?}");
    let told = app.inspector().workflows().await.unwrap();
    assert!(told[0].corrupt == 2 && told[0].corrupt_at.is_some(), "{told:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_damaged_instance_ends_as_corrupt_even_when_cancelled() {
    let world = World::alone();
    let worker = world.worker().await;
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let app = world.app().await;
    let ids = ["node", "stopped", "head", "graph"];
    let mut handles = Vec::new();
    for id in ids {
        let graph = Graph::new();
        let first = graph.node("first", &TASK, "wait".to_owned());
        let second = graph.node("second", &TASK, "sum".to_owned()).after(&first);
        handles.push(flow.start(graph.output(&second)).id(id).await.unwrap());
    }
    eventually("they run", PATIENCE, async || world.began().len() == ids.len()).await;
    let mut conn = world.redis.conn().await;
    let line: String = conn.hget(world.flow_key("instances"), "graph").await.unwrap();
    let digest = line.split(' ').nth(4).unwrap().to_owned();
    let () = conn.hset(world.flow_key("nodes"), "node/0", "q").await.unwrap();
    let () = conn.hdel(world.flow_key("nodes"), "stopped/0").await.unwrap();
    let () = conn.hset(world.flow_key("instances"), "head", "x y z").await.unwrap();
    let () = conn.hset(world.flow_key("instances"), "graph", line.replace(&digest, "none")).await.unwrap();
    handles[1].cancel("enough").await.unwrap();
    eventually("it is cancelled", PATIENCE, async || {
        handles[1].status().await.unwrap().state == WorkflowState::Cancelled
    })
    .await;
    // As a worker does for instances without steps for two minutes.
    app.recover_stuck_workflows().await.unwrap();
    for (at, id) in ids.iter().enumerate().filter(|(at, _)| *at != 1) {
        eventually("it failed", PATIENCE, async || {
            handles[at].status().await.is_ok_and(|status| status.state == WorkflowState::Failed)
        })
        .await;
        let report = app.inspector().instance("flow", id, 0).await.unwrap().unwrap();
        assert_eq!(report.code.as_deref(), Some("corrupt"), "{report:?}");
        assert_eq!(report.broken_by.as_deref(), (*id == "node").then_some("first"));
        // The handler was not stopped, and its outcome changes nothing any more.
        tasks.handle(format!("~flow/{id}/0/1")).unwrap().cancel("enough").await.unwrap();
    }
    worker.stop().await;
}
