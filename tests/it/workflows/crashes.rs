//! A process dies, or a reply is lost, at each step.

use std::time::Duration;

use heartline::{
    Graph, JobState, Node, NodeState, RetentionLimit, SilentSelection, StallOptions, TaskDef, WorkflowOptions,
};

use crate::support::puppet::{Puppet, Token};
use crate::support::task::{self, TestTask};
use crate::support::{PATIENCE, Warnings, eventually};
use crate::workflows::world::{TASK, WORK, World, options, single};

fn chain(graph: &Graph<()>) -> Node<u64> {
    let first = graph.node("first", &TASK, "value 1".to_owned());
    let second = graph.node("second", &TASK, "sum".to_owned()).after(&first);
    graph.node("third", &TASK, "sum".to_owned()).after(&second)
}

/// Removes all data of the task of the nodes.
async fn lose_the_task(world: &World) {
    let mut conn = world.redis.conn().await;
    for part in ["wait", "payload", "dispatchedAt", "meta", "events", "wake"] {
        let key = format!("{}:{{{WORK}}}:{part}", world.prefix);
        let () = redis::cmd("DEL").arg(key).query_async(&mut conn).await.unwrap();
    }
}

/// Long enough for the grace period and a look.
const LOOKED: Duration = Duration::from_secs(16);

#[tokio::test]
async fn an_instance_that_was_written_but_not_sent_is_sent_by_a_look() {
    let (world, flow, tasks) = World::with_flow().await;
    let graph = Graph::new();
    let last = chain(&graph);
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    // As if it had died between the two calls: the instance exists, its first job does not.
    let mut conn = world.redis.conn().await;
    lose_the_task(&world).await;
    let outbox = world.flow_key("outbox");
    let () = redis::cmd("ZADD").arg(&outbox).arg(0).arg("s one/0/1").query_async(&mut conn).await.unwrap();
    assert_eq!(tasks.counts().await.unwrap().waiting, 0);
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(LOOKED, handle.result()).await.unwrap().unwrap(), 1);
    assert_eq!(world.began(), [0, 1, 2]);
    worker.stop().await;
}

#[tokio::test]
async fn a_send_that_comes_twice_or_late_starts_nothing() {
    let (world, flow, tasks) = World::with_flow().await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let last = chain(&graph);
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 1);
    world.outboxes_are_empty(PATIENCE).await;
    // A copy of the send, after its job was removed.
    let mut conn = world.redis.conn().await;
    let table = format!("{}:{{{WORK}}}", world.prefix);
    let id = "~flow/one/1/1";
    for (key, command) in [("completed", "ZREM"), ("payload", "HDEL"), ("result", "HDEL"), ("dispatchedAt", "HDEL")] {
        let () = redis::cmd(command).arg(format!("{table}:{key}")).arg(id).query_async(&mut conn).await.unwrap();
    }
    let () =
        redis::cmd("HSET").arg(format!("{table}:payload")).arg(id).arg("\"sum\"").query_async(&mut conn).await.unwrap();
    let () = redis::cmd("RPUSH").arg(format!("{table}:wait")).arg(id).query_async(&mut conn).await.unwrap();
    eventually("it is dropped", PATIENCE, async || tasks.counts().await.unwrap().pending_total() == 0).await;
    let stored: Option<String> =
        redis::cmd("HGET").arg(format!("{table}:payload")).arg(id).query_async(&mut conn).await.unwrap();
    assert_eq!((stored, world.began()), (None, vec![0, 1, 2]));
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_a_server_lost_is_sent_again() {
    let (world, flow, _) = World::with_flow().await;
    let graph = Graph::new();
    let last = chain(&graph);
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    let mut conn = world.redis.conn().await;
    lose_the_task(&world).await;
    // It had no step for long.
    let running = world.flow_key("running");
    let () = redis::cmd("ZADD").arg(&running).arg(0).arg("one").query_async(&mut conn).await.unwrap();
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(LOOKED, handle.result()).await.unwrap().unwrap(), 1);
    assert_eq!(world.began(), [0, 1, 2]);
    worker.stop().await;
}

#[tokio::test]
async fn old_ended_instances_are_removed_with_all_data() {
    let world = World::new();
    let keep = RetentionLimit::age(Duration::from_secs(3600));
    let (flow, _) = world.producer(WorkflowOptions::new().retention(keep)).await;
    let worker = world.worker().await;
    let mut handles = Vec::new();
    for id in ["old", "new"] {
        let graph = Graph::new();
        let last = chain(&graph);
        handles.push(flow.start(graph.output(&last)).id(id).await.unwrap());
        assert_eq!(handles.last().unwrap().result().await.unwrap(), 1);
    }
    let mut conn = world.redis.conn().await;
    let table = format!("{}:{{flow:flow}}", world.prefix);
    let () =
        redis::cmd("ZADD").arg(format!("{table}:completed")).arg(1).arg("old").query_async(&mut conn).await.unwrap();
    let flows = format!("{}:workflows", world.prefix);
    let () = redis::cmd("ZADD").arg(&flows).arg(0).arg("flow").query_async(&mut conn).await.unwrap();
    eventually("it is gone", PATIENCE, async || {
        matches!(handles[0].status().await, Err(heartline::Error::WorkflowNotFound { .. }))
    })
    .await;
    assert_eq!(handles[1].result().await.unwrap(), 1);
    let of_old = async |key: &str| {
        let fields: Vec<String> =
            redis::cmd("HKEYS").arg(format!("{table}:{key}")).query_async(&mut world.redis.conn().await).await.unwrap();
        fields.iter().filter(|field| field.starts_with("old")).count()
    };
    for key in ["instances", "nodes", "input", "value", "output"] {
        assert_eq!(of_old(key).await, 0, "{key}");
    }
    let () =
        redis::cmd("ZADD").arg(format!("{table}:completed")).arg(1).arg("new").query_async(&mut conn).await.unwrap();
    let () = redis::cmd("ZADD").arg(&flows).arg(0).arg("flow").query_async(&mut conn).await.unwrap();
    // The shape is removed with the last one.
    eventually("nothing is left", PATIENCE, async || {
        !world.redis.dump(&world.prefix).await.keys().any(|key| key.ends_with(":shapes"))
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_a_sweep_ends_advances_its_workflow_at_once() {
    let (world, flow, tasks) = World::with_flow().await;
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 1".to_owned());
    let last = graph.node("last", &TASK, "value 2".to_owned()).after(&first).always();
    flow.start(graph.output(&last)).id("one").await.unwrap();
    let mut dead = Puppet::over(&world.redis, format!("{}:{{{WORK}}}:", world.prefix)).await;
    dead.claim_all(&["~flow/one/0/1"]).await;
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(0);
    let worker = world.worker_with(options().stall(stall)).await;
    let job = tasks.handle("~flow/one/0/1").unwrap();
    eventually("it failed", PATIENCE, async || job.state().await.unwrap() == JobState::Failed).await;
    // A look would find it only after a grace period of 10 s.
    eventually("the next one ran", LOOKED / 3, async || world.began() == [1]).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_manual_cancel_or_fail_advances_a_workflow_without_a_worker() {
    let (world, flow, _) = World::with_flow().await;
    let inspector = world.app().await.inspector();
    let graph = Graph::new();
    let first = graph.node("first", &TASK, "value 1".to_owned());
    let second = graph.node("second", &TASK, "value 2".to_owned());
    let last = graph.node("last", &TASK, "value 3".to_owned()).after(&[first, second]).always();
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    let report = inspector.cancel(WORK, ["~flow/one/0/1"], "not this one").await.unwrap();
    assert_eq!(report.done, 1, "{report:?}");
    let states = async || handle.status().await.unwrap().nodes.iter().map(|node| node.state).collect::<Vec<_>>();
    assert_eq!(states().await, [NodeState::Cancelled, NodeState::Open, NodeState::Pending]);
    let mut dead = Puppet::over(&world.redis, format!("{}:{{{WORK}}}:", world.prefix)).await;
    dead.claim_all(&["~flow/one/1/1"]).await;
    // A worker that is gone by now has declared the options.
    let stall = StallOptions::new().interval(Duration::from_secs(1)).recover_running(false);
    let worker = world.worker_with(options().stall(stall)).await;
    worker.stop().await;
    inspector.fail_running(WORK, SilentSelection::all()).await.unwrap();
    assert_eq!(states().await, [NodeState::Cancelled, NodeState::Failed, NodeState::Open]);
}

#[tokio::test]
async fn a_run_that_lost_its_job_advances_no_workflow() {
    let (test, warnings) = (TestTask::new(), Warnings::capture());
    let flow = test.app().await.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    // There is no heartbeat in this test: only the reply to its outcome reports the loss to the worker.
    let worker = test.start_worker(task::options(Duration::from_secs(3600))).await;
    let handle = flow.start(single("only", "go")).id("one").await.unwrap();
    let id = "~flow/one/0/1";
    eventually("it runs", PATIENCE, async || !test.journal.runs_of(id).is_empty()).await;
    // As if a sweep had taken the job, and another worker had claimed it.
    let mut other = Puppet::of(&test).await;
    let taken = Token { id: id.to_owned(), fence: 9_000_000_000_000_000 };
    test.run::<u64>("HSET", "locks", &[id, &format!("{}:{}", other.name, taken.fence)]).await;
    test.journal.open("go");
    let fence = format!("fence={}", test.journal.runs_of(id)[0].fence);
    warnings.wait_for(&["an outcome came too late", &fence], PATIENCE).await;
    // A worker that stops first reports ended nodes to their workflows.
    worker.stop().await;
    assert_eq!(handle.status().await.unwrap().nodes[0].state, NodeState::Open);
    other.settle(&[], &[(&taken, "requeue", 0, "0", "")], 0).await;
    let worker = test.start_worker(task::fast()).await;
    let value = tokio::time::timeout(PATIENCE, handle.result()).await.unwrap().unwrap();
    assert_eq!(test.journal.runs_of(id).iter().skip(1).map(|run| run.fence).collect::<Vec<_>>(), [value]);
    worker.stop().await;
}

#[tokio::test]
async fn steps_that_fail_block_no_others() {
    // As many as one call of a look lists.
    const STEPS: usize = 200;
    let (world, flow, _) = World::with_flow().await;
    let start = async |id: &str, task: TaskDef<String, u64>| {
        let graph = Graph::new();
        let only = graph.node("only", &task, "value 1".to_owned());
        flow.start(graph.output(&only)).id(id).await.unwrap()
    };
    start("fails", TaskDef::new("broken")).await;
    let handle = start("one", TASK).await;
    lose_the_task(&world).await;
    // The server refuses each cancel of a job of this task.
    let mut conn = world.redis.conn().await;
    let locks = format!("{}:{{broken}}:locks", world.prefix);
    let () = redis::cmd("SET").arg(&locks).arg("in the way").query_async(&mut conn).await.unwrap();
    // Many steps of one instance, with different spellings of its run. The send of the other instance comes after
    // them.
    let mut steps = redis::cmd("ZADD");
    steps.arg(world.flow_key("outbox")).arg(1).arg("s one/0/1");
    (1..=STEPS).for_each(|width| {
        steps.arg(0).arg(format!("x fails/{:0width$}", 1));
    });
    let () = steps.query_async(&mut conn).await.unwrap();
    let worker = world.worker().await;
    assert_eq!(tokio::time::timeout(LOOKED, handle.result()).await.expect("it is blocked").unwrap(), 1);
    worker.stop().await;
}
