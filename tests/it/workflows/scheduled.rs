//! Workflows that the job of a tick starts, and waits for.

use std::time::Duration;

use heartline::{Context, JobError, Schedule, TaskOptions, WorkflowOptions, WorkflowState};

use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{World, single};

#[tokio::test]
async fn a_tick_starts_a_workflow_and_overlaps_until_it_ends() {
    let world = World::new();
    let nodes = world.worker().await;
    let app = world.app().await;
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let started = flow.clone();
    let handler = move |ctx: Context, what: String| {
        let flow = started.clone();
        async move { Ok::<_, JobError>(flow.start(single("only", &what)).id(ctx.id().as_str()).await?.result().await?) }
    };
    let starts = app.task("starts", TaskOptions::new(), handler).unwrap();
    let every = Schedule::every(Duration::from_secs(1));
    let starts = starts.schedule("nightly", every, "wait".to_owned()).unwrap();
    let worker = TestWorker::start(app.worker());

    let info = eventually("a tick overlaps", PATIENCE, async || {
        starts.schedules().get("nightly").await.unwrap().filter(|info| info.overlapped > 0)
    })
    .await;
    let first = info.last_job.unwrap();
    let instance = flow.handle(&first).unwrap();
    assert_eq!((instance.status().await.unwrap().state, info.fired), (WorkflowState::Running, 1));
    instance.cancel("enough").await.unwrap();
    let info = eventually("the next tick fires", PATIENCE, async || {
        starts.schedules().get("nightly").await.unwrap().filter(|info| info.fired == 2)
    })
    .await;
    let second = flow.handle(info.last_job.unwrap()).unwrap();
    eventually("its workflow runs", PATIENCE, async || second.status().await.ok()).await;
    second.cancel("enough").await.unwrap();
    worker.stop().await;
    nodes.stop().await;
}
