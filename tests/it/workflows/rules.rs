//! The outcomes of nodes and instances by the rules of their graphs.

use std::time::Duration;

use heartline::{Error, Graph, JobState, Node, NodeState, TaskDef, TaskOptions, WorkflowOptions, WorkflowState};

use crate::support::task::built;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{TASK, WORK, World, node, options, work};

fn state_of<T>(status: &heartline::WorkflowStatus<T>, name: &str) -> NodeState {
    status.nodes.iter().find(|node| node.name == name).unwrap().state
}

#[tokio::test]
async fn a_graph_runs_each_node_once_after_its_inputs() {
    let (world, flow, _) = World::with_flow().await;
    let graph = Graph::new();
    let first = node(&graph, "first", "value 1");
    let parts: Vec<Node<u64>> =
        (0..8).map(|n| node(&graph, &format!("part-{n}"), &format!("value {n}")).after(&first)).collect();
    let sum = node(&graph, "sum", "sum").after(&parts);
    let last = node(&graph, "last", "named sum").after(&sum);
    let graph = graph.output(&last);
    let handle = flow.start(graph).id("one").await.unwrap();
    assert_eq!(handle.existed(), Some(false));
    let before = handle.status().await.unwrap();
    assert_eq!((before.state, before.unfinished, before.open), (WorkflowState::Running, 11, 1));
    assert_eq!((state_of(&before, "first"), state_of(&before, "sum")), (NodeState::Open, NodeState::Pending));
    let late = handle.result_within(Duration::from_millis(10)).await.unwrap_err();
    assert!(matches!(&late, Error::WorkflowTimedOut { id, .. } if id == "one") && late.is_retryable(), "{late:?}");

    let worker = world.worker().await;
    let answer =
        tokio::time::timeout(Duration::from_secs(5), handle.result()).await.expect("no step waited for a look");
    assert_eq!(answer.unwrap(), 29);
    let began = world.began();
    assert_eq!((began[0], began[9], began[10]), (0, 9, 10), "{began:?}");
    assert_eq!(began.len(), 11, "{began:?}");
    let after = handle.status().await.unwrap();
    assert_eq!((after.state, after.unfinished, after.open), (WorkflowState::Completed, 0, 0));
    assert!(after.nodes.iter().all(|node| node.state == NodeState::Completed));
    // The same id again starts nothing.
    let again = Graph::new();
    let other = node(&again, "other", "value 9");
    let again = flow.start(again.output(&other)).id("one").await.unwrap();
    assert_eq!((again.existed(), again.result().await.unwrap()), (Some(true), 29));
    assert_eq!(flow.handle("one").unwrap().result().await.unwrap(), 29);
    assert!(matches!(flow.handle("two").unwrap().result().await, Err(Error::WorkflowNotFound { .. })));
    // No step is pending.
    let app = world.app().await;
    assert_eq!(app.task_ref_for(&TASK).unwrap().counts().await.unwrap().pending_total(), 0);
    let dump = world.redis.dump(&world.prefix).await;
    assert!(!dump.keys().any(|key| key.ends_with(":outbox")), "{:?}", dump.keys());
    worker.stop().await;
}

#[tokio::test]
async fn the_value_of_one_node_is_the_input_of_the_next() {
    let world = World::new();
    let app = world.app().await;
    let double = TaskDef::<u64, u64>::new("double");
    app.register(double.handler(|_: heartline::Context, n: u64| async move { Ok::<_, heartline::JobError>(2 * n) }))
        .unwrap();
    let worker = app.worker().spawn();
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    let chain = graph.node("0", &double, 1).then("1", &double).then("2", &double).then("3", &double);
    assert_eq!(flow.start(graph.output(&chain)).await.unwrap().result().await.unwrap(), 16);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_failure_skips_its_dependents_and_other_nodes_continue() {
    let (world, flow, _) = World::with_flow().await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let (bad, good) = (node(&graph, "bad", "fail"), node(&graph, "good", "value 1"));
    let needs = node(&graph, "needs", "value 2").after(&bad);
    node(&graph, "behind", "value 2").after(&needs);
    node(&graph, "other", "value 3").after(&good);
    node(&graph, "clean", "sum").after(&[bad.clone(), good.clone()]).always();
    node(&graph, "one", "sum").after(&[bad, good.clone()]).any();
    let handle = flow.start(graph.output(&good)).await.unwrap();
    let failed = handle.result().await.unwrap_err();
    let Error::WorkflowFailed { node, failure, .. } = &failed else { panic!("{failed:?}") };
    assert_eq!((&**node, &*failure.code, &*failure.message), ("bad", "luck", "no luck"));
    let status = handle.status().await.unwrap();
    assert_eq!((status.failure.as_ref(), status.result), (Some(&**failure), None));
    let of = |name| state_of(&status, name);
    assert_eq!((of("bad"), of("needs"), of("behind")), (NodeState::Failed, NodeState::Skipped, NodeState::Skipped));
    for name in ["good", "other", "clean", "one"] {
        assert_eq!(of(name), NodeState::Completed, "{name}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn an_optional_failure_is_ignored_and_a_quorum_needs_its_number() {
    let (world, flow, _) = World::with_flow().await;
    let worker = world.worker().await;
    let graph = Graph::new();
    let mut parts: Vec<Node<u64>> = (0..3).map(|n| node(&graph, &format!("part-{n}"), "value 5")).collect();
    parts.push(node(&graph, "bad", "fail").optional());
    let merge = node(&graph, "merge", "sum").after(&parts).at_least(3);
    let handle = flow.start(graph.output(&merge)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 15);

    let graph = Graph::new();
    let bad = node(&graph, "bad", "fail").optional();
    let merge = node(&graph, "merge", "sum").after(&[bad, node(&graph, "good", "value 1")]).at_least(2);
    // Its value is missing, so the instance does not succeed.
    let handle = flow.start(graph.output(&merge)).await.unwrap();
    let failed = handle.result().await.unwrap_err();
    assert!(
        matches!(&failed, Error::WorkflowFailed { node, failure, .. } if node == "merge" && failure.code == "skipped"),
        "{failed:?}"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_ends_waiting_nodes_at_once_and_running_ones_on_stop() {
    let (world, flow, tasks) = World::with_flow().await;
    let graph = Graph::new();
    let (long, first) = (node(&graph, "long", "wait"), node(&graph, "first", "value 1"));
    node(&graph, "next", "value 1").after(&[long.clone(), first]);
    let started = flow.start(graph.output(&long)).id("runs").await.unwrap();
    let graph = Graph::new();
    let waits = node(&graph, "waits", "value 1").delay(Duration::from_secs(3600));
    let waiting = flow.start(graph.output(&waits)).id("waits").await.unwrap();
    assert_eq!(waiting.cancel("no need").await.unwrap(), WorkflowState::Cancelled);
    let cancelled = waiting.result().await.unwrap_err();
    assert!(matches!(&cancelled, Error::WorkflowCancelled { reason, .. } if reason == "no need"), "{cancelled:?}");

    let worker = world.worker().await;
    let job = tasks.handle("~flow/runs/0/1").unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    // Its handler may have stopped by then.
    let stands = started.cancel("enough").await.unwrap();
    assert!(matches!(stands, WorkflowState::Running | WorkflowState::Cancelled), "{stands}");
    // A second cancel changes nothing.
    started.cancel("again").await.unwrap();
    let cancelled = started.result().await.unwrap_err();
    assert!(matches!(&cancelled, Error::WorkflowCancelled { reason, .. } if reason == "enough"), "{cancelled:?}");
    let failure = started.status().await.unwrap().failure.unwrap();
    assert_eq!((&*failure.code, &*failure.message), ("cancelled", "enough"));
    assert_eq!(state_of(&started.status().await.unwrap(), "next"), NodeState::Pending);
    worker.stop().await;
}

#[tokio::test]
async fn a_task_with_a_broken_key_blocks_no_others_and_is_reported() {
    let world = World::alone();
    let worker = world.worker().await;
    let app = world.app().await;
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let broken = app.task_ref::<String, u64>("broken").unwrap();
    let graph = Graph::new();
    // Its name sorts before the other task.
    graph.node("first", &broken, "value 1".to_owned());
    let long = node(&graph, "long", "wait");
    let started = flow.start(graph.output(&long)).id("runs").await.unwrap();
    let job = tasks.handle("~flow/runs/1/1").unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;

    let mut conn = world.redis.conn().await;
    let table = format!("{}:{{broken}}:payload", world.prefix);
    let () = redis::pipe().del(&table).set(&table, "foreign").query_async(&mut conn).await.unwrap();
    started.cancel("enough").await.unwrap();
    // The handler was stopped, and the other node waits for its task.
    let is_cancelled = async || job.state().await.unwrap() == JobState::Cancelled;
    eventually("the handler is asked to stop", PATIENCE, is_cancelled).await;
    let inspector = app.inspector();
    eventually("the age of the failing step is shown", PATIENCE * 3, async || {
        let flows = inspector.workflows().await.unwrap();
        flows[0].oldest_step.is_some_and(|oldest| oldest > Duration::from_secs(17))
    })
    .await;
    let () = redis::pipe().del(&table).query_async(&mut conn).await.unwrap();
    let cancelled = tokio::time::timeout(PATIENCE, started.result()).await.unwrap().unwrap_err();
    assert!(matches!(&cancelled, Error::WorkflowCancelled { reason, .. } if reason == "enough"), "{cancelled:?}");
    worker.stop().await;
}

#[tokio::test]
async fn one_worker_serves_more_workflows_than_it_takes_at_a_time() {
    let world = World::alone();
    let app = world.app().await;
    for number in 0..150 {
        let flow = app.workflow::<u64>(&format!("flow-{number}"), WorkflowOptions::new()).unwrap();
        let graph = Graph::new();
        let later = node(&graph, "later", "value 1").delay(Duration::from_secs(3600));
        flow.start(graph.output(&later)).deadline(Duration::from_secs(1)).await.unwrap();
    }
    let worker = world.worker().await;
    let inspector = app.inspector();
    eventually("all were stopped by their deadlines", PATIENCE, async || {
        inspector.workflows().await.unwrap().iter().filter(|flow| flow.failed == 1).count() == 150
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn all_faults_of_a_graph_are_reported_and_nothing_is_written() {
    let (world, flow, _) = World::with_flow().await;
    let graph = Graph::new();
    let (a, other) = (node(&graph, "a", "value 1"), Graph::new());
    let b = node(&graph, "b b", "value 1").after(&a).at_least(2);
    node(&graph, "a", "value 1").after(&node(&other, "x", "value 1"));
    let _ = a.after(&b).then("next", &TaskDef::<u64, u64>::new(WORK)).always();
    let e = flow.start(graph.output(&b)).id("one/two").await.unwrap_err();
    let Error::Config(faults) = &e else { panic!("{e:?}") };
    let told = faults.to_string();
    for part in ["id", "node \"a\"", "\"b b\"", "at_least", "cycle", "another graph", "made by `then`"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(flow.start(Graph::new().output(&b)).await.is_err());
    assert!(world.redis.dump(&world.prefix).await.is_empty());
}

#[tokio::test]
async fn a_task_that_keeps_nothing_and_many_dependents_lose_nothing() {
    let world = World::new();
    let keep = heartline::Retention::remove_at_once();
    let worker = world.worker_with(options().concurrency(50).retention(keep)).await;
    let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let first = node(&graph, "first", "value 0");
    let parts: Vec<Node<u64>> = (0..498).map(|n| node(&graph, &format!("part-{n}"), "value 2").after(&first)).collect();
    let sum = node(&graph, "sum", "sum").after(&parts);
    let handle = flow.start(graph.output(&sum)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 996);
    assert_eq!(world.began().len(), 500);
    assert_eq!(tasks.counts().await.unwrap().pending_total(), 0);
    worker.stop().await;
}

#[tokio::test]
async fn definitions_with_the_same_ids_are_separate() {
    let world = World::new();
    let worker = world.worker_with(options().partitions(3)).await;
    let app = world.app().await;
    let partitioned = TASK.options(TaskOptions::new().partitions(3));
    let mut answers = Vec::new();
    for (name, value) in [("a", 1), ("b", 2)] {
        let flow = app.workflow::<u64>(name, WorkflowOptions::new()).unwrap();
        let graph = Graph::new();
        let parts: Vec<Node<u64>> =
            (0..20).map(|n| graph.node(format!("{n}"), &partitioned, format!("value {value}"))).collect();
        let sum = graph.node("sum", &partitioned, "sum".to_owned()).after(&parts);
        answers.push(flow.start(graph.output(&sum)).id("same").await.unwrap());
    }
    assert_eq!(answers[0].result().await.unwrap(), 20);
    assert_eq!(answers[1].result().await.unwrap(), 40);
    assert_eq!(world.began().len(), 42);
    // Those of the partitions too: no script clears them with a step.
    world.outboxes_are_empty(PATIENCE).await;
    worker.stop().await;
}

/// Lets the user `limited` touch the keys of the workflow, of these tasks, and those across tasks.
async fn limit(world: &World, tasks: &[&str]) {
    let mut conn = world.redis.conn().await;
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("limited").arg("on").arg(">secret").arg("resetkeys").arg("&*").arg("+@all");
    for tag in tasks.iter().map(|task| format!("{{{task}}}")).chain(["{flow:flow}".to_owned()]) {
        acl.arg(format!("~{}:{tag}:*", world.prefix));
    }
    for key in ["workers", "worker:*", "boot:*", "name:*", "tasks", "workflows"] {
        acl.arg(format!("~{}:{key}", world.prefix));
    }
    let () = acl.query_async(&mut conn).await.unwrap();
}

#[tokio::test]
async fn an_end_is_recorded_if_the_server_refuses_the_keys_of_the_next_task() {
    const OTHER: TaskDef<String, u64> = TaskDef::new("other");
    let world = World::alone();
    limit(&world, &[WORK, "other"]).await;
    let url = world.redis.app_url().replace("redis://", "redis://limited:secret@");
    let app = built(&url, &world.prefix).await;
    app.register(TASK.options(options()).handler(work)).unwrap();
    let limited = TestWorker::start(app.worker());
    limited.working().await;
    let app = world.app().await;
    app.register(OTHER.options(options()).handler(work)).unwrap();
    let other = TestWorker::start(app.worker());
    other.working().await;

    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = || {
        let graph = Graph::new();
        let first = node(&graph, "first", "value 1");
        let next = graph.node("next", &OTHER, "value 2".to_owned()).after(&first);
        graph.output(&next)
    };
    // The worker of the first task learns to which task nodes go.
    assert_eq!(flow.start(graph()).await.unwrap().result().await.unwrap(), 2);
    assert_eq!(flow.start(graph()).await.unwrap().result().await.unwrap(), 2);
    limit(&world, &[WORK]).await;
    let handle = flow.start(graph()).await.unwrap();
    let recorded = async || state_of(&handle.status().await.unwrap(), "first") == NodeState::Completed;
    eventually("the end is recorded before any visit", Duration::from_secs(5), recorded).await;
    assert_eq!(state_of(&handle.status().await.unwrap(), "next"), NodeState::Open);
    limit(&world, &[WORK, "other"]).await;
    assert_eq!(handle.result().await.unwrap(), 2);
    limited.stop().await;
    other.stop().await;
}
