//! Worker processes that are killed while workflows run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use heartline::{App, Graph, JobFilter, JobState, Node, RefusalReason, StallOptions, WorkflowOptions, WorkflowState};

use crate::support::{Child, PATIENCE, rounds};
use crate::workflows::world::{self, TASK, WORK, World};

/// The number of instances, and of nodes in each: one, then `WIDE`, then one.
const INSTANCES: u64 = 30;
const WIDE: u64 = 8;

/// How many workers a thorough run kills; `HEARTLINE_KILLS` sets another number.
const KILLS: usize = 12;
const HOW_OFTEN: &str = "HEARTLINE_KILLS";

/// The program of the children: a worker that records each run of a handler in a list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_going_to_be_killed() {
    let Some(role) = Child::role() else { return };
    let (url, prefix) = role.split_once(' ').unwrap();
    let app = App::builder().redis(url).prefix(prefix).build().await.unwrap();
    let log = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let key = format!("{prefix}:log");
    let handler = move |ctx: heartline::Context, what: String| {
        let (mut log, key) = (log.clone(), key.clone());
        async move {
            let line = format!("{} {}", ctx.id(), ctx.stalled_count());
            let () = redis::cmd("RPUSH")
                .arg(&key)
                .arg(line)
                .query_async(&mut log)
                .await
                .map_err(heartline::JobError::new)?;
            world::work(ctx, what).await
        }
    };
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(1000);
    app.task(WORK, world::options().concurrency(4).stall(stall), handler).unwrap();
    let _ = app.worker().run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workflow_ends_once_under_kills() {
    let world = World::alone();
    let role = format!("{} {}", world.redis.url(), world.prefix);
    let start = || {
        let mut child = Child::start(module_path!(), "a_worker_that_is_going_to_be_killed", &role);
        child.drain();
        child
    };
    let mut workers = [start(), start(), start()];
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let kills = std::env::var(HOW_OFTEN).map_or_else(|_| rounds(KILLS), |kills| kills.parse().unwrap());
    // Enough that they do not end before.
    let instances = INSTANCES * (kills as u64).div_ceil(KILLS as u64);
    let (mut handles, mut killed) = (Vec::new(), 0);
    let mut next_kill = Instant::now() + Duration::from_millis(300);
    for at in 0..instances {
        let graph = Graph::new();
        let first = graph.node("first", &TASK, format!("value {at}"));
        let parts: Vec<Node<u64>> =
            (0..WIDE).map(|n| graph.node(format!("part-{n}"), &TASK, "named first".to_owned()).after(&first)).collect();
        let sum = graph.node("sum", &TASK, "sum".to_owned()).after(&parts);
        handles.push(flow.start(graph.output(&sum)).id(format!("w-{at}")).await.unwrap());
    }
    // At any moment of their work.
    while killed < kills {
        tokio::time::sleep(next_kill.saturating_duration_since(Instant::now())).await;
        drop(std::mem::replace(&mut workers[killed % 3], start()));
        killed += 1;
        next_kill = Instant::now() + Duration::from_millis(200 + 61 * killed as u64 % 400);
    }
    for (at, handle) in (0..).zip(&handles) {
        let result = tokio::time::timeout(PATIENCE * 6 * (instances / INSTANCES) as u32, handle.result()).await;
        assert_eq!(result.expect("it hangs").unwrap(), (at + 1) * WIDE, "{}", handle.id());
    }
    world.outboxes_are_empty(PATIENCE * 2).await;
    // Each node began once, except after a recorded stall of its worker.
    let lines: Vec<String> = redis::cmd("LRANGE")
        .arg(format!("{}:log", world.prefix))
        .arg(0)
        .arg(-1)
        .query_async(&mut world.redis.conn().await)
        .await
        .unwrap();
    let (mut begun, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for line in &lines {
        assert!(begun.insert(line), "{line} began twice");
        nodes.insert(line.split(' ').next().unwrap());
    }
    assert_eq!(nodes.len() as u64, instances * (WIDE + 2));
    for handle in &handles {
        assert_eq!(handle.status().await.unwrap().state, WorkflowState::Completed);
    }
    assert_eq!(tasks.counts().await.unwrap().pending_total(), 0);
    // The jobs belong to the workflow: they cannot be retried or removed.
    let app = world.app().await;
    let inspector = app.inspector();
    let told = inspector.remove(WORK, JobFilter::new(JobState::Completed)).await.unwrap();
    assert_eq!((told.done, told.refused), (0, instances * (WIDE + 2)), "{told:?}");
    let told = inspector.retry(WORK, "~flow/w-0/0/1").await.unwrap();
    assert_eq!(told.refusals[0].why, RefusalReason::PartOfWorkflow);
}
