//! Graphs in graphs, as nodes and from handlers; deadlines, delays, and starts in parts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heartline::{
    App, Context, Error, Graph, JobError, JobState, Node, NodeName, NodeState, OnFailure, Outcome, TaskDef,
    WorkflowOptions, WorkflowState,
};
use tokio::sync::mpsc;

use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{TASK, WORK, World, node, options};

/// A graph whose output is the sum of its two parts.
fn sum_of(one: u64, other: u64) -> Graph<u64> {
    let graph = Graph::new();
    let parts = [node(&graph, "one", &format!("value {one}")), node(&graph, "other", &format!("value {other}"))];
    let sum = node(&graph, "sum", "sum").after(&parts);
    graph.output(&sum)
}

/// Only what ended instances keep is left.
async fn nothing_is_left_to_do(world: &World) {
    let dump = world.redis.dump(&world.prefix).await;
    for left in [":outbox", ":cursor", ":staging", ":running", ":stopping"] {
        assert!(!dump.keys().any(|key| key.ends_with(left)), "{left} {:?}", dump.keys());
    }
}

#[tokio::test]
async fn a_handle_returns_the_outcome_of_each_node() {
    let (world, flow, _) = World::with_flow().await;
    let graph = Graph::new();
    let good = node(&graph, "good", "value 7");
    let bad = node(&graph, "bad", "fail").optional();
    let skipped = node(&graph, "skipped", "value 1").after(&bad).optional();
    let child = graph.subgraph("child", sum_of(3, 4));
    let handle = flow.start(graph.output(&good)).id("one").await.unwrap();
    assert!(handle.node(&good).await.unwrap().is_none(), "it has not run");
    let worker = world.worker().await;
    handle.result().await.unwrap();
    assert_eq!(handle.node(&good).await.unwrap().unwrap().unwrap(), 7);
    const CHILD: NodeName<u64> = NodeName::new("child");
    for value in [handle.node(&child).await, handle.node(CHILD).await, handle.node("child").await] {
        assert_eq!(value.unwrap().unwrap().unwrap(), 7);
    }
    let failure = handle.node(&bad).await.unwrap().unwrap().unwrap_err();
    assert_eq!((failure.code.as_str(), failure.id.as_str()), ("luck", "~flow/one/1/1"));
    assert_eq!(handle.node(&skipped).await.unwrap().unwrap().unwrap_err().code, "skipped");
    assert!(matches!(handle.node::<String>("good").await, Err(Error::Codec { .. })));
    assert!(matches!(handle.node::<u64>("none").await, Err(Error::Config(_))));
    let unknown = flow.handle("two").unwrap().node(&good).await;
    assert!(matches!(unknown, Err(Error::WorkflowNotFound { .. })), "{unknown:?}");
    worker.stop().await;
}

#[tokio::test]
async fn the_value_of_a_graph_node_is_the_output_of_its_graph() {
    let (world, flow, _) = World::with_flow().await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let first = node(&graph, "first", "value 1");
    // One that waits, one that does not, and one in another.
    let outer = Graph::new();
    let inner = outer.subgraph("inner", sum_of(3, 4));
    let sum = node(&outer, "sum", "named inner").after(&inner);
    let parts = [graph.subgraph("behind", sum_of(1, 2)).after(&first), graph.subgraph("outer", outer.output(&sum))];
    let sum = node(&graph, "sum", "sum").after(&parts);
    let handle = flow.start(graph.output(&sum)).id("one").await.unwrap();
    let answer =
        tokio::time::timeout(Duration::from_secs(5), handle.result()).await.expect("no step waited for a look");
    assert_eq!(answer.unwrap(), 3 + 8);
    let status = handle.status().await.unwrap();
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Completed), "{status:?}");
    assert_eq!((status.nodes[1].task.as_deref(), status.nodes[1].job.as_ref()), (None, None));
    // first, 3 of each of three graphs, sum of the outer one, sum.
    assert_eq!(world.began().len(), 1 + 3 + 3 + 1 + 1);
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_failed_graph_fails_its_node_and_runs_again_as_a_whole() {
    for policy in [OnFailure::Finish, OnFailure::Cancel, OnFailure::Pause] {
        let world = World::new();
        let worker = world.worker().await;
        let (flow, _) = world.producer(WorkflowOptions::new().on_failure(policy)).await;
        let graph = Graph::new();
        let child = Graph::new();
        let bad = node(&child, "bad", "fail");
        node(&child, "skipped", "value 1").after(&bad);
        let child = graph.subgraph("child", child.output(&bad));
        let behind = node(&graph, "behind", "value 2").after(&child);
        let handle = flow.start(graph.output(&behind)).id("one").await.unwrap();
        let stands = if policy == OnFailure::Pause { WorkflowState::Paused } else { WorkflowState::Failed };
        eventually("it is paused or has failed", PATIENCE, async || handle.status().await.unwrap().state == stands)
            .await;
        assert_eq!(handle.status().await.unwrap().nodes[0].state, NodeState::Failed);
        if policy != OnFailure::Pause {
            let failed = handle.result().await.unwrap_err();
            let Error::WorkflowFailed { node: name, failure, .. } = &failed else { panic!("{failed:?}") };
            assert_eq!((&**name, &*failure.code, &*failure.message), ("child", "luck", "no luck"));
        }
        assert_eq!(world.runs.lock().unwrap().clone(), ["~flow/one/0.1/0/1"]);
        assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
        eventually("it is paused again", PATIENCE, async || handle.status().await.unwrap().state == stands).await;
        assert_eq!(world.runs.lock().unwrap().clone(), ["~flow/one/0.1/0/1", "~flow/one/0.2/0/1"]);
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_cancel_reaches_nested_graphs() {
    let (world, flow, tasks) = World::with_flow().await;
    let worker = world.worker().await;
    let (graph, child, inner) = (Graph::new(), Graph::new(), Graph::new());
    node(&inner, "long", "wait");
    child.subgraph("inner", inner);
    let child = graph.subgraph("child", child);
    let behind = node(&graph, "behind", "value 2").after(&child);
    let handle = flow.start(graph.output(&behind)).id("one").await.unwrap();
    let job = tasks.handle("~flow/one/0.1/0.1/0/1").unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.is_ok_and(|state| state == JobState::Running)).await;
    handle.cancel("enough").await.unwrap();
    let cancelled = tokio::time::timeout(Duration::from_secs(5), handle.result()).await.unwrap().unwrap_err();
    assert!(matches!(cancelled, Error::WorkflowCancelled { .. }), "{cancelled:?}");
    assert_eq!(handle.status().await.unwrap().nodes[0].state, NodeState::Cancelled);
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_policy_cancel_stops_nested_graphs_at_once() {
    let world = World::new();
    let worker = world.worker().await;
    let (flow, _) = world.producer(WorkflowOptions::new().on_failure(OnFailure::Cancel)).await;
    // If each level waited for the next look at its workflow, this would take 45 seconds.
    let mut graph = Graph::new();
    let mut long = node(&graph, "long", "wait");
    node(&graph, "bad", "fail").after(&node(&graph, "first", "value 1"));
    for level in 0..3 {
        let outer = Graph::new();
        outer.subgraph(format!("level-{level}"), graph);
        long = node(&outer, "long", "wait");
        graph = outer;
    }
    let handle = flow.start(graph.output(&long)).id("one").await.unwrap();
    let failed = tokio::time::timeout(PATIENCE, handle.result()).await.expect("nothing is cancelled").unwrap_err();
    assert!(matches!(&failed, Error::WorkflowFailed { node, .. } if node == "level-2"), "{failed:?}");
    assert_eq!(handle.status().await.unwrap().nodes[1].state, NodeState::Cancelled);
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_draining_worker_runs_until_its_workflows_have_ended() {
    for _ in 0..3 {
        let world = World::new();
        let app = world.app().await;
        forest(&app).await;
        app.task(WORK, options(), |ctx: Context, what: String| crate::workflows::world::work(ctx, what)).unwrap();
        let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
        let graph = Graph::new();
        let first = node(&graph, "first", "value 1");
        let grown = graph.node("grown", &TaskDef::<u64, u64>::new("tree"), 2).after(&first);
        let last = node(&graph, "last", "sum").after(&grown);
        let handle = flow.start(graph.output(&last)).await.unwrap();
        tokio::time::timeout(PATIENCE, app.worker().drain()).await.expect("the drain never ends").unwrap();
        assert_eq!(handle.status().await.unwrap().state, WorkflowState::Completed);
    }
}

#[tokio::test]
async fn a_graph_without_workers_is_cancelled_before_it_began() {
    let (world, flow, _) = World::with_flow().await;
    let graph = Graph::new();
    let child = graph.subgraph("child", sum_of(1, 2));
    let handle = flow.start(graph.output(&child)).await.unwrap();
    assert_eq!(handle.cancel("never mind").await.unwrap(), WorkflowState::Cancelled);
    nothing_is_left_to_do(&world).await;
}

/// Adds 1 for each node of a tree of this depth, whose inner nodes expand into two others.
async fn tree(ctx: Context, depth: u64) -> Result<u64, JobError> {
    if depth > 0 {
        let graph = Graph::new();
        let parts = [graph.node("left", &TREE, depth - 1), graph.node("right", &TREE, depth - 1)];
        let sum = graph.node("sum", &SUM, ()).after(&parts);
        ctx.expand(graph.output(&sum))?;
    }
    Ok(1)
}

async fn sum(ctx: Context, (): ()) -> Result<u64, JobError> {
    let inputs = ctx.upstreams::<u64>().await?;
    let mut sum = 1;
    for (_, value) in inputs {
        sum += value.map_err(|failure| JobError::new(failure.message))?;
    }
    Ok(sum)
}

const TREE: TaskDef<u64, u64> = TaskDef::new("tree");
const SUM: TaskDef<(), u64> = TaskDef::new("sum");
const CRAWL: TaskDef<u64, u64> = TaskDef::new("crawl");

async fn forest(app: &App) {
    app.register(TREE.options(options()).handler(tree)).unwrap();
    app.register(SUM.options(options()).handler(sum)).unwrap();
}

#[tokio::test]
async fn a_node_that_grew_ends_with_the_output_of_its_graph() {
    let world = World::new();
    let app = world.app().await;
    forest(&app).await;
    let worker = app.worker().spawn();
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    let root = graph.node("root", &TREE, 3);
    let handle = flow.start(graph.output(&root)).id("one").await.unwrap();
    let answer =
        tokio::time::timeout(Duration::from_secs(10), handle.result()).await.expect("no step waited for a look");
    // 8 leaves, and a sum for each of the 7 others.
    assert_eq!(answer.unwrap(), 15);
    // The job itself keeps the result of its handler.
    let job = app.task_ref_for(&TREE).unwrap().handle("~flow/one/0/1").unwrap();
    assert_eq!(job.result().await.unwrap(), 1);
    nothing_is_left_to_do(&world).await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn without_an_output_the_value_of_the_handler_counts() {
    let world = World::new();
    let app = world.app().await;
    async fn deeper(ctx: Context, depth: u64) -> Result<u64, JobError> {
        let graph = Graph::new();
        graph.node("next", &CRAWL, depth + 1);
        // The graph that is too deep is refused, which changes nothing.
        if let Err(e) = ctx.expand(graph) {
            assert!(e.to_string().contains("must be at most 8 deep"), "{e}");
        }
        Ok(depth)
    }
    app.register(CRAWL.options(options()).handler(deeper)).unwrap();
    let worker = app.worker().spawn();
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    let root = graph.node("root", &CRAWL, 0);
    let handle = flow.start(graph.output(&root)).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(10), handle.result()).await.unwrap();
    assert_eq!(answer.unwrap(), 0);
    let counts = app.task_ref_for(&CRAWL).unwrap().counts().await.unwrap();
    assert_eq!((counts.completed, counts.pending_total()), (9, 0), "{counts:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_hook_grows_nothing_because_the_outcome_is_stored() {
    let world = World::new();
    let app = world.app().await;
    let (told, mut refused) = mpsc::unbounded_channel();
    let tree = app.register(TREE.options(options()).handler(async |_: Context, leaf: u64| Ok::<_, JobError>(leaf)));
    let hook = move |ctx: Context, _: Outcome<u64>| {
        let graph = Graph::new();
        graph.node("more", &TREE, 1);
        told.send(ctx.expand(graph).map_err(|e| e.to_string())).unwrap();
        async { Ok::<_, JobError>(()) }
    };
    tree.unwrap().on_complete(hook).unwrap();
    let worker = app.worker().spawn();
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    let root = graph.node("root", &TREE, 7);
    let handle = flow.start(graph.output(&root)).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.unwrap().unwrap(), 7);
    let refused = refused.recv().await.unwrap().unwrap_err();
    assert!(refused.contains("must not change the outcome"), "{refused}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_graph_deeper_than_eight_or_with_job_options_is_refused() {
    let (_world, flow, _) = World::with_flow().await;
    let mut graph = sum_of(1, 2);
    for _ in 0..9 {
        let around = Graph::new();
        let child = around.subgraph("child", graph);
        graph = around.output(&child);
    }
    let deep = flow.start(graph).await.unwrap_err();
    assert!(deep.to_string().contains("9 deep"), "{deep}");
    let (graph, child) = (Graph::new(), Graph::new());
    node(&child, "no name", "value 1");
    let child = graph.subgraph("child", child).attempts(3);
    graph.node("tries", &TASK, "value 1".to_owned()).attempts(0).at_least(0);
    graph.node("fine", &TASK, "value 1".to_owned());
    let _ = child;
    let last = node(&graph, "last", "value 1");
    let faults = flow.start(graph.output(&last)).await.unwrap_err().to_string();
    for part in [
        "a graph with a delay, priority, attempts or timeout",
        "in the graph \"child\"",
        "no name",
        "node \"tries\", attempts is 0",
    ] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
}

#[tokio::test]
async fn an_instance_past_its_deadline_is_stopped_and_fails() {
    let (world, flow, _) = World::with_flow().await;
    let worker = world.worker().await;
    let (graph, child) = (Graph::new(), Graph::new());
    let long = node(&child, "long", "wait");
    let child = graph.subgraph("child", child.output(&long));
    let handle = flow.start(graph.output(&child)).deadline(Duration::from_secs(1)).await.unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(15), handle.result()).await.unwrap().unwrap_err();
    let Error::WorkflowFailed { node: name, failure, .. } = &failed else { panic!("{failed:?}") };
    assert_eq!((&**name, &*failure.code), ("", "timeout"));
    let told = format!("the instance {} of the workflow flow failed (timeout): its deadline passed", handle.id());
    assert_eq!(failed.to_string(), told);
    assert_eq!(handle.status().await.unwrap().nodes[0].state, NodeState::Cancelled);
    nothing_is_left_to_do(&world).await;
    let dump = world.redis.dump(&world.prefix).await;
    assert!(!dump.keys().any(|key| key.ends_with(":deadlines")), "{:?}", dump.keys());
    // Paused, with nothing open.
    let graph = Graph::new();
    let late = node(&graph, "late", "value 1").delay(Duration::from_secs(3600));
    let behind = node(&graph, "behind", "value 1").after(&late);
    let handle = flow.start(graph.output(&behind)).deadline(Duration::from_secs(1)).await.unwrap();
    handle.pause("").await.unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(15), handle.result()).await.unwrap().unwrap_err();
    assert!(failed.to_string().contains("deadline"), "{failed}");
    // If it had failed already, the error names that in addition, not instead.
    let graph = Graph::new();
    node(&graph, "bad", "fail");
    let long = node(&graph, "long", "wait");
    node(&graph, "later", "value 1").delay(Duration::from_secs(3600));
    node(&graph, "behind", "value 1").after(&long);
    let handle = flow.start(graph.output(&long)).id("both").deadline(Duration::from_secs(1)).await.unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(15), handle.result()).await.unwrap().unwrap_err();
    let Error::WorkflowFailed { node: name, failure, .. } = &failed else { panic!("{failed:?}") };
    let told = "its deadline passed; before that its node bad failed (luck): no luck";
    assert_eq!((&**name, &*failure.code, &*failure.message), ("", "timeout", told));
    let report = world.app().await.inspector().instance("flow", "both", 0).await.unwrap().unwrap();
    assert_eq!((report.code.as_deref(), report.message.as_deref()), (Some("timeout"), Some(told)));
    assert_eq!(report.broken_by, None, "its deadline did");
    assert_eq!(handle.node::<u64>("behind").await.unwrap().unwrap().unwrap_err().code, "skipped");
    let short = Graph::new();
    let one = node(&short, "one", "value 1");
    let refused = flow.start(short.output(&one)).deadline(Duration::from_millis(999)).await.unwrap_err();
    assert!(refused.to_string().contains("deadline"), "{refused}");
    worker.stop().await;
}

#[tokio::test]
async fn an_instance_with_a_delay_exists_and_its_jobs_run_later() {
    let (world, flow, tasks) = World::with_flow().await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let first = node(&graph, "first", "value 1");
    let second = node(&graph, "second", "named first").after(&first);
    let started = Instant::now();
    let handle = flow.start(graph.output(&second)).id("one").delay(Duration::from_secs(2)).await.unwrap();
    assert_eq!(tasks.handle("~flow/one/0/1").unwrap().state().await.unwrap(), JobState::Delayed);
    assert_eq!(handle.result().await.unwrap(), 2);
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    let late = Graph::new();
    let one = node(&late, "one", "value 1");
    let handle = flow.start(late.output(&one)).delay(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(handle.cancel("never mind").await.unwrap(), WorkflowState::Cancelled);
    worker.stop().await;
}

#[tokio::test]
async fn a_large_graph_is_started_in_parts_and_runs_each_node_once() {
    let world = World::alone();
    let worker = world.worker_with(options().concurrency(64)).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let first = node(&graph, "first", "value 1");
    let parts: Vec<Node<u64>> =
        (0..1300).map(|n| node(&graph, &format!("part-{n}"), "value 1").after(&first)).collect();
    let sum = node(&graph, "sum", "sum").after(&parts);
    // Values that take more than one call.
    let large = format!("value {}", "0".repeat(300_000));
    for n in 0..3 {
        node(&graph, &format!("large-{n}"), &large);
    }
    let handle = flow.start(graph.output(&sum)).id("one").await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(60), handle.result()).await.unwrap();
    assert_eq!(answer.unwrap(), 1300);
    eventually("all ended", PATIENCE, async || handle.status().await.unwrap().unfinished == 0).await;
    let (mut began, count) = (world.began(), 1305);
    began.sort_unstable();
    assert_eq!(began, (0..count).collect::<Vec<u32>>());
    assert_eq!(handle.status().await.unwrap().state, WorkflowState::Completed);
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long: make check-workflows"]
async fn the_largest_graphs_run_each_node_once_as_a_fan_or_a_row() {
    let world = World::alone();
    let worker = world.worker_with(options().concurrency(100)).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let many = Graph::new();
    let first = node(&many, "first", "value 1");
    let parts: Vec<Node<u64>> =
        (0..9_998).map(|n| node(&many, &format!("part-{n}"), "value 1").after(&first)).collect();
    let sum = node(&many, "sum", "sum").after(&parts);
    let handle = flow.start(many.output(&sum)).id("many").await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE * 20, handle.result()).await.unwrap().unwrap(), 9_998);
    let mut began = std::mem::take(&mut *world.runs.lock().unwrap()).len();
    assert_eq!(began, 10_000);
    let line = Graph::new();
    let mut last = node(&line, "0", "value 1");
    for at in 1..10_000 {
        last = node(&line, &at.to_string(), "sum").after(&last);
    }
    let handle = flow.start(line.output(&last)).id("line").await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE * 20, handle.result()).await.unwrap().unwrap(), 1);
    began = world.began().len();
    assert_eq!(began, 10_000);
    assert!(world.began().windows(2).all(|pair| pair[0] < pair[1]), "in another order");
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_large_failed_graph_runs_again_in_parts() {
    let world = World::alone();
    let worker = world.worker_with(options().concurrency(64)).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let bad = node(&graph, "bad", "fail");
    let parts: Vec<Node<u64>> = (0..600).map(|n| node(&graph, &format!("part-{n}"), "value 1").after(&bad)).collect();
    let sum = node(&graph, "sum", "sum").after(&parts);
    let handle = flow.start(graph.output(&sum)).await.unwrap();
    assert!(handle.result().await.is_err());
    assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
    assert!(handle.result().await.is_err());
    assert_eq!(world.began(), [0, 0]);
    assert_eq!(handle.status().await.unwrap().unfinished, 0);
    worker.stop().await;
}

#[tokio::test]
async fn workers_begin_a_new_run_whose_caller_died_between_its_parts() {
    let world = World::alone();
    let worker = world.worker_with(options().concurrency(64)).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let bad = node(&graph, "bad", "fail");
    for n in 0..600 {
        node(&graph, &format!("part-{n}"), "value 1").after(&bad);
    }
    let handle = flow.start(graph.output(&bad)).id("one").await.unwrap();
    assert!(handle.result().await.is_err());
    // As the first of two parts leaves it, some time ago.
    let states: Vec<(String, &str)> =
        (0..500).map(|n| (format!("one/{n}"), if n == 0 { "p 0 0" } else { "p 1 1" })).collect();
    let () = redis::pipe()
        .atomic()
        .hset_multiple(world.flow_key("nodes"), &states)
        .hdel(world.flow_key("value"), "one/0")
        .hset(world.flow_key("stopping"), "one", "again ")
        .zadd(world.flow_key("outbox"), "r one/1", 5)
        .query_async(&mut world.redis.conn().await)
        .await
        .unwrap();
    eventually("it has run again", PATIENCE, async || world.began() == [0, 0]).await;
    let ended = async || handle.status().await.unwrap().state == WorkflowState::Failed;
    eventually("it has ended again", PATIENCE, ended).await;
    let failed = handle.result().await.unwrap_err();
    assert!(matches!(&failed, Error::WorkflowFailed { failure, .. } if &*failure.code == "luck"), "{failed:?}");
    nothing_is_left_to_do(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn two_starts_of_one_large_graph_start_it_once() {
    let world = World::alone();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let large = || {
        let graph = Graph::new();
        let parts: Vec<Node<u64>> = (0..700).map(|n| node(&graph, &format!("part-{n}"), "value 1")).collect();
        let sum = node(&graph, "sum", "sum").after(&parts);
        graph.output(&sum)
    };
    let starts = (0..4).map(|_| async { flow.start(large()).id("one").await.unwrap().existed() });
    let existed = futures_util::future::join_all(starts).await;
    assert_eq!(existed.iter().filter(|existed| **existed == Some(false)).count(), 1, "{existed:?}");
    let worker = world.worker_with(options().concurrency(64)).await;
    let handle = flow.handle("one").unwrap();
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), handle.result()).await.unwrap().unwrap(), 700);
    assert_eq!(world.began().len(), 701);
    let _ = Arc::strong_count(&world.redis);
    worker.stop().await;
}
