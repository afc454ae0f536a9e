//! Instance ids that are used again.

use std::time::Duration;

use heartline::{
    App, Context, Graph, JobError, NodeState, OnFailure, TaskDef, WorkflowHandle, WorkflowOptions, WorkflowState,
};
use redis::AsyncCommands;

use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{TASK, WORK, World, single};

const MAYBE: TaskDef<(), Option<u64>> = TaskDef::new("maybe");

/// A graph of two nodes with these names and the values 1 and 2, and one that returns the value of the node `a`.
fn named(first: &str, second: &str) -> Graph<u64> {
    let graph = Graph::new();
    let one = graph.node(first, &TASK, "value 1".to_owned());
    let two = graph.node(second, &TASK, "value 2".to_owned());
    let answer = graph.node("answer", &TASK, "named a".to_owned()).after(&[one, two]);
    graph.output(&answer)
}

/// Removes the only instance and its workflow, as retention does; its jobs ended a minute ago.
async fn has_gone(world: &World) {
    let mut conn = world.redis.conn().await;
    let keys: Vec<String> = conn.keys(format!("{}:{{flow:flow}}:*", world.prefix)).await.unwrap();
    let () = conn.del(keys).await.unwrap();
    let completed = world.task_key("completed");
    let jobs: Vec<(String, f64)> = conn.zrange_withscores(&completed, 0, -1).await.unwrap();
    assert_eq!(jobs.len(), 3);
    for (job, at) in jobs {
        let () = conn.zadd(&completed, job, at - 60_000.0).await.unwrap();
    }
}

#[tokio::test]
async fn a_free_id_starts_again_with_its_own_inputs_and_graph() {
    let (world, flow, _) = World::with_flow().await;
    let worker = world.worker().await;
    let handle = flow.start(named("a", "b")).id("nightly").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    has_gone(&world).await;
    // The task keeps the jobs of the first one for a day.
    let again = flow.start(named("b", "a")).id("nightly").await.unwrap();
    assert_eq!(again.existed(), Some(false));
    assert_eq!(tokio::time::timeout(PATIENCE, again.result()).await.expect("it makes no progress").unwrap(), 3);
    assert_eq!(world.runs.lock().unwrap().len(), 6, "each handler ran");
    worker.stop().await;
}

#[tokio::test]
async fn a_job_older_than_its_instance_is_replaced() {
    let (world, flow, tasks) = World::with_flow().await;
    let graph = |what: &str| {
        let graph = Graph::new();
        let only = graph.node("only", &TASK, what.to_owned());
        graph.output(&only)
    };
    flow.start(graph("value 1")).id("nightly").await.unwrap();
    // The server loses the instance, but not its job.
    let mut conn = world.redis.conn().await;
    let keys: Vec<String> = conn.keys(format!("{}:{{flow:flow}}:*", world.prefix)).await.unwrap();
    let () = conn.del(keys).await.unwrap();
    let (dispatched, id) = (world.task_key("dispatchedAt"), "~flow/nightly/0/1");
    let at: u64 = conn.hget(&dispatched, id).await.unwrap();
    let () = conn.hset(&dispatched, id, at - 60_000).await.unwrap();
    let again = flow.start(graph("value 2")).id("nightly").await.unwrap();
    assert_eq!(again.existed(), Some(false));
    // A job that this instance sent itself stays unchanged when it is sent again.
    let sent: u64 = conn.hget(&dispatched, id).await.unwrap();
    let () = conn.zadd(world.flow_key("outbox"), "s nightly/0/1", 1).await.unwrap();
    world.app().await.recover_stuck_workflows().await.unwrap();
    assert_eq!(conn.hget::<_, _, u64>(&dispatched, id).await.unwrap(), sent);
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(PATIENCE, again.result()).await.expect("it makes no progress").unwrap(), 2);
    assert_eq!(world.began(), [0]);
    assert_eq!(tasks.counts().await.unwrap().waiting, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_since_the_delay_passed_is_kept() {
    let (world, flow, _) = World::with_flow().await;
    flow.start(single("only", "value 1")).id("late").delay(Duration::from_secs(60)).await.unwrap();
    let mut conn = world.redis.conn().await;
    let key = |name: &str| format!("{}:{{{WORK}}}:{name}", world.prefix);
    let id = "~flow/late/0/1";
    // It waits since it was due, which a claim records.
    let due: f64 = conn.zscore(key("delayed"), id).await.unwrap();
    let () = conn.zrem(key("delayed"), id).await.unwrap();
    let () = conn.rpush(key("wait"), id).await.unwrap();
    let () = conn.hset(key("enqueuedAt"), id, due as u64).await.unwrap();
    let sent: u64 = conn.hget(key("dispatchedAt"), id).await.unwrap();
    let () = conn.zadd(world.flow_key("outbox"), "s late/0/1", 1).await.unwrap();
    world.app().await.recover_stuck_workflows().await.unwrap();
    assert_eq!(conn.hget::<_, _, u64>(key("dispatchedAt"), id).await.unwrap(), sent);
}

/// Dumped keys.
struct Kept(Vec<(String, Vec<u8>)>);

impl Kept {
    /// The keys of the task.
    async fn of_task(world: &World) -> Kept {
        let mut conn = world.redis.conn().await;
        let keys: Vec<String> = conn.keys(format!("{}:{{{WORK}}}:*", world.prefix)).await.unwrap();
        let mut kept = Vec::new();
        for key in keys {
            let value = redis::cmd("DUMP").arg(&key).query_async(&mut conn).await.unwrap();
            kept.push((key, value));
        }
        Kept(kept)
    }

    /// Restores them, as on a server that lost its last writes.
    async fn restored(self, world: &World) {
        let mut conn = world.redis.conn().await;
        let keys: Vec<String> = conn.keys(format!("{}:{{{WORK}}}:*", world.prefix)).await.unwrap();
        let () = conn.del(keys).await.unwrap();
        for (key, value) in self.0 {
            let mut restore = redis::cmd("RESTORE");
            let () = restore.arg(key).arg(0).arg(value).query_async(&mut conn).await.unwrap();
        }
    }
}

/// An instance whose jobs were lost after the send: the task has the jobs of the earlier instance of its id.
async fn lost(world: &World) -> (App, WorkflowHandle<u64>) {
    let worker = world.worker().await;
    let app = world.app().await;
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    assert_eq!(flow.start(named("a", "b")).id("nightly").await.unwrap().result().await.unwrap(), 2);
    worker.stop().await;
    has_gone(world).await;
    let before = Kept::of_task(world).await;
    let handle = flow.start(named("b", "a")).id("nightly").await.unwrap();
    before.restored(world).await;
    (app, handle)
}

#[tokio::test]
async fn a_job_that_ended_before_its_instance_began_is_ignored() {
    let world = World::new();
    let (app, handle) = lost(&world).await;
    app.recover_stuck_workflows().await.unwrap();
    assert_eq!(handle.status().await.unwrap().state, WorkflowState::Running);
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.expect("it makes no progress").unwrap(), 3);
    worker.stop().await;
}

#[tokio::test]
async fn a_node_whose_job_was_lost_is_cancelled_despite_an_older_job() {
    let world = World::new();
    let (_app, handle) = lost(&world).await;
    assert_eq!(handle.cancel("enough").await.unwrap(), WorkflowState::Cancelled);
    let nodes = handle.status().await.unwrap().nodes;
    let states: Vec<NodeState> = nodes.iter().map(|node| node.state).collect();
    assert_eq!(states, [NodeState::Cancelled, NodeState::Cancelled, NodeState::Pending]);
}

#[tokio::test]
async fn a_node_whose_job_is_gone_is_cancelled_at_once() {
    let (world, flow, _) = World::with_flow().await;
    let handle = flow.start(single("only", "value 1")).id("nightly").await.unwrap();
    let mut conn = world.redis.conn().await;
    let () = conn.del(&[world.task_key("payload"), world.task_key("wait")]).await.unwrap();
    assert_eq!(handle.cancel("enough").await.unwrap(), WorkflowState::Cancelled);
}

#[tokio::test]
async fn a_job_whose_end_is_still_in_the_outbox_does_not_run_again() {
    let (world, flow, _) = World::with_flow().await;
    let handle = flow.start(single("only", "value 1")).id("nightly").await.unwrap();
    // The workflow cannot record the end: one of its keys has another type.
    let mut conn = world.redis.conn().await;
    let cursor = world.flow_key("cursor");
    let () = conn.set(&cursor, "in the way").await.unwrap();
    let worker = world.worker().await;
    let outbox = world.task_key("outbox");
    eventually("its job has ended", PATIENCE, async || {
        world.redis.conn().await.zcard::<_, u64>(&outbox).await.unwrap() == 1
    })
    .await;
    worker.stop().await;
    let () = conn.del(&cursor).await.unwrap();
    // By the slow clock of its task, the job ended a minute before its instance began.
    let () = conn.zincr(world.task_key("completed"), "~flow/nightly/0/1", -60_000).await.unwrap();
    world.app().await.recover_stuck_workflows().await.unwrap();
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.expect("it hangs").unwrap(), 1);
    assert_eq!(world.began(), [0]);
    worker.stop().await;
}

#[tokio::test]
async fn a_grown_graph_may_return_none_and_follows_the_policy() {
    let world = World::new();
    let app = world.app().await;
    let maybe = |ctx: Context, (): ()| async move {
        if ctx.id().as_str().contains("/0.1/") {
            return Ok::<_, JobError>(None);
        }
        let more = Graph::new();
        let none = more.node("none", &MAYBE, ());
        ctx.expand(more.output(&none))?;
        Ok(Some(5))
    };
    app.task("maybe", crate::workflows::world::options(), maybe).unwrap();
    let grow = |ctx: Context, _: String| async move {
        let more = Graph::new();
        more.node("bad", &TASK, "fail".to_owned());
        let long = more.node("long", &TASK, "wait".to_owned());
        more.node("behind", &TASK, "sum".to_owned()).after(&long);
        ctx.expand(more)?;
        Ok::<u64, JobError>(0)
    };
    app.task("grows", crate::workflows::world::options(), grow).unwrap();
    let grower = app.worker().spawn();
    let worker = world.worker().await;
    let flow = app.workflow::<Option<u64>>("maybe", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    let node = graph.node("node", &MAYBE, ());
    let handle = flow.start(graph.output(&node)).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.unwrap().unwrap(), None);

    let flow = app.workflow::<()>("cancels", WorkflowOptions::new().on_failure(OnFailure::Cancel)).unwrap();
    let graph = Graph::new();
    graph.node("node", &TaskDef::<String, u64>::new("grows"), String::new());
    let handle = flow.start(graph).await.unwrap();
    // A node that waits for its cancel would never end.
    let failed = tokio::time::timeout(PATIENCE, handle.result()).await.expect("nothing is cancelled").unwrap_err();
    let told = failed.to_string();
    assert!(told.ends_with("failed at its node node (luck): no luck"), "{told}");
    assert_eq!(handle.status().await.unwrap().state, WorkflowState::Failed);
    worker.stop().await;
    let _ = grower.stop().await.unwrap();
}
