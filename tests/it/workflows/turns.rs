//! Instances that are paused, resumed, and run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heartline::{Context, Error, Graph, JobError, JobState, NodeState, OnFailure, WorkflowOptions, WorkflowState};
use redis::AsyncCommands;

use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{TASK, WORK, World, single};

#[tokio::test]
async fn a_resumed_instance_continues_where_it_was_paused() {
    let (world, flow, tasks) = World::with_flow().await;
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 3".to_owned());
    let second = graph.node("second", &TASK, "sum".to_owned()).after(&first);
    let handle = flow.start(graph.output(&second)).id("one").await.unwrap();
    assert_eq!(handle.pause("not now").await.unwrap(), WorkflowState::Paused);
    assert_eq!(handle.pause("not now").await.unwrap(), WorkflowState::Paused);
    let worker = world.worker().await;
    let job = tasks.handle("~flow/one/0/1").unwrap();
    eventually("the sent node continues", PATIENCE, async || job.state().await.unwrap() == JobState::Completed).await;
    eventually("its end was recorded", PATIENCE, async || handle.status().await.unwrap().open == 0).await;
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.nodes[1].state), (WorkflowState::Paused, NodeState::Pending));
    assert_eq!(world.began(), [0]);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Running);
    assert_eq!(handle.result().await.unwrap(), 3);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Completed);
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_that_came_with_the_last_completion_can_be_retried() {
    let (world, flow, _) = World::with_flow().await;
    let handle = flow.start(single("last", "value 3")).id("one").await.unwrap();
    // The state that the scripts leave if the job completed and its end was recorded after the cancel.
    let mut conn = world.redis.conn().await;
    let head: String = conn.hget(world.flow_key("instances"), "one").await.unwrap();
    let digest = head.split(' ').nth(4).unwrap();
    let () = conn.hset(world.flow_key("instances"), "one", format!("1 1 0 0 {digest} -")).await.unwrap();
    let () = conn.hset(world.flow_key("nodes"), "one/0", "c").await.unwrap();
    let () = conn.hset(world.flow_key("value"), "one/0", "3").await.unwrap();
    let () = conn.zrem(world.flow_key("running"), "one").await.unwrap();
    let () = conn.zadd(world.flow_key("cancelled"), "one", 5).await.unwrap();
    let cancelled = handle.result().await.unwrap_err();
    assert!(matches!(cancelled, Error::WorkflowCancelled { .. }), "{cancelled}");
    assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
    assert_eq!(handle.result().await.unwrap(), 3);
    assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Completed);
}

#[tokio::test]
async fn a_paused_instance_shows_who_paused_it_and_why() {
    let (world, flow, _) = World::with_flow().await;
    let inspector = world.app().await.inspector().by("alice");
    let mut events = flow.events();
    let handle = flow.start(single("only", "value 3")).id("one").await.unwrap();
    let by_hand = inspector.workflow_handle("flow", "one").unwrap();
    by_hand.pause("S3 is down").await.unwrap();
    let pause = async || inspector.instance("flow", "one", 0).await.unwrap().unwrap().pause;
    let told = pause().await.unwrap();
    assert_eq!((told.by.as_str(), told.reason.as_str()), ("alice", "S3 is down"));
    // A second pause changes nothing.
    handle.pause("me, too").await.unwrap();
    assert_eq!(pause().await, Some(told));
    by_hand.resume().await.unwrap();
    assert_eq!(pause().await, None);
    handle.pause("").await.unwrap();
    let told = pause().await.unwrap();
    assert_eq!((told.by.as_str(), told.reason.as_str()), ("", ""));
    let told = handle.cancel("enough").await.unwrap();
    assert!(matches!(told, WorkflowState::Running | WorkflowState::Cancelled), "{told}");
    let mut heard = Vec::new();
    while heard.len() < 4 {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        heard.push((event.name(), event.by));
    }
    let by = |name: &str| Some(name.to_owned());
    let paused = "workflow:paused";
    let expected =
        [("workflow:started", None), (paused, by("alice")), ("workflow:resumed", by("alice")), (paused, None)];
    assert_eq!(heard, expected);
    let report = inspector.instance("flow", "one", 0).await.unwrap().unwrap();
    assert_eq!((report.state, report.message.as_deref()), (WorkflowState::Cancelled, Some("enough")));
}

#[tokio::test]
async fn the_policy_pause_pauses_and_each_failed_node_runs_again() {
    let world = World::new();
    let app = world.app().await;
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let runs = Arc::clone(&world.runs);
    let handler = move |ctx: Context, what: String| {
        runs.lock().unwrap().push(ctx.id().to_string());
        let fails = what == "flaky" && !mended.load(Ordering::SeqCst);
        async move { if fails { Err(JobError::new("no luck").fatal()) } else { Ok(what.len() as u64) } }
    };
    app.task(WORK, crate::workflows::world::options(), handler).unwrap();
    let worker = app.worker().spawn();
    for on_failure in [OnFailure::Pause, OnFailure::Finish, OnFailure::Cancel] {
        is_mended.store(false, Ordering::SeqCst);
        world.runs.lock().unwrap().clear();
        let flow = app.workflow::<u64>(on_failure.as_str(), WorkflowOptions::new().on_failure(on_failure)).unwrap();
        let graph = Graph::new();
        let good = graph.node("good", &TASK, "good".to_owned());
        let bad = graph.node("bad", &TASK, "flaky".to_owned()).after(&good);
        let last = graph.node("last", &TASK, "last one".to_owned()).after(&[good, bad]);
        let handle = flow.start(graph.output(&last)).await.unwrap();
        let stands = if on_failure == OnFailure::Pause { WorkflowState::Paused } else { WorkflowState::Failed };
        eventually("it is paused or has failed", PATIENCE, async || handle.status().await.unwrap().state == stands)
            .await;
        is_mended.store(true, Ordering::SeqCst);
        assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
        assert_eq!(handle.result().await.unwrap(), 8);
        assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Completed);
        let runs: Vec<String> =
            world.runs.lock().unwrap().iter().map(|id| id.split('/').skip(2).collect::<Vec<_>>().join("/")).collect();
        assert_eq!(runs, ["0/1", "1/1", "1/2", "2/2"], "{on_failure}");
    }
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_waits_until_no_node_runs() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new().on_failure(OnFailure::Pause)).await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let bad = graph.node("bad", &TASK, "fail".to_owned());
    let long = graph.node("long", &TASK, "wait".to_owned());
    let last = graph.node("last", &TASK, "sum".to_owned()).after(&[bad, long]);
    let handle = flow.start(graph.output(&last)).await.unwrap();
    eventually("it is paused", PATIENCE, async || handle.status().await.unwrap().state == WorkflowState::Paused).await;
    let busy = handle.retry_failed().await.unwrap_err();
    assert!(matches!(busy, Error::WorkflowBusy { open: 1, .. }), "{busy:?}");
    handle.cancel("enough").await.unwrap();
    let cancelled = tokio::time::timeout(Duration::from_secs(5), handle.result()).await.unwrap().unwrap_err();
    assert!(matches!(cancelled, Error::WorkflowCancelled { .. }), "{cancelled:?}");
    worker.stop().await;
}
