//! Instances that are paused, resumed, and run once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heartline::{
    Context, Error, Graph, JobError, JobState, NodeState, OnFailure, TaskDef, WorkflowOptions, WorkflowState,
};

use crate::support::{PATIENCE, eventually};
use crate::world::{WORK, World};

const TASK: TaskDef<String, u64> = TaskDef::new(WORK);

#[tokio::test]
async fn a_paused_instance_opens_nothing_and_goes_on_where_it_stood() {
    let world = World::new();
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 3".to_owned());
    let second = graph.node("second", &TASK, "sum".to_owned()).after(&first);
    let handle = flow.start(graph.output(&second)).id("one").await.unwrap();
    assert_eq!(handle.pause().await.unwrap(), WorkflowState::Paused);
    assert_eq!(handle.pause().await.unwrap(), WorkflowState::Paused);
    let worker = world.worker().await;
    let job = tasks.handle("~flow/one/0/1").unwrap();
    eventually("what was sent goes on", PATIENCE, async || job.state().await.unwrap() == JobState::Completed).await;
    eventually("its end was heard", PATIENCE, async || handle.status().await.unwrap().open == 0).await;
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.nodes[1].state), (WorkflowState::Paused, NodeState::Pending));
    assert_eq!(world.began(), [0]);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Running);
    assert_eq!(handle.result().await.unwrap(), 3);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Completed);
    worker.stop().await;
}

#[tokio::test]
async fn a_pause_before_the_last_node_ends_when_it_is_resumed() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let last = graph.node("last", &TASK, "value 3".to_owned());
    let handle = flow.start(graph.output(&last)).await.unwrap();
    handle.pause().await.unwrap();
    let worker = world.worker().await;
    eventually("its end was heard", PATIENCE, async || handle.status().await.unwrap().unfinished == 0).await;
    assert_eq!(handle.status().await.unwrap().state, WorkflowState::Paused);
    assert_eq!(handle.resume().await.unwrap(), WorkflowState::Completed);
    assert_eq!(handle.result().await.unwrap(), 3);
    worker.stop().await;
}

#[tokio::test]
async fn a_failure_pauses_where_that_is_the_rule_and_what_failed_runs_again() {
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
    app.task(WORK, crate::world::options(), handler).unwrap();
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
        eventually("it stands", PATIENCE, async || handle.status().await.unwrap().state == stands).await;
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
async fn what_runs_is_waited_for_before_anything_runs_again() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new().on_failure(OnFailure::Pause)).await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let bad = graph.node("bad", &TASK, "fail".to_owned());
    let long = graph.node("long", &TASK, "wait".to_owned());
    let last = graph.node("last", &TASK, "sum".to_owned()).after(&[bad, long]);
    let handle = flow.start(graph.output(&last)).await.unwrap();
    eventually("it stands", PATIENCE, async || handle.status().await.unwrap().state == WorkflowState::Paused).await;
    let busy = handle.retry_failed().await.unwrap_err();
    assert!(matches!(busy, Error::WorkflowBusy { open: 1, .. }), "{busy:?}");
    handle.cancel("enough").await.unwrap();
    let cancelled = tokio::time::timeout(Duration::from_secs(5), handle.result()).await.unwrap().unwrap_err();
    assert!(matches!(cancelled, Error::WorkflowCancelled { .. }), "{cancelled:?}");
    worker.stop().await;
}
