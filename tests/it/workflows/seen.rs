//! What people see of workflows: lists, and why each node of an instance waits.

use std::time::Duration;

use heartline::{
    Graph, Heartbeat, Inspector, InstanceReport, JobState, JobValues, Node, NodeReport, NodeState, OnFailure,
    RetryPolicy, SilentSelection, StallOptions, TaskDef, WorkflowOptions, WorkflowState,
};
use redis::AsyncCommands;

use crate::support::puppet::Puppet;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use crate::workflows::world::{WORK, World, node, options, single, work};

async fn seen(inspector: &Inspector, id: &str) -> InstanceReport {
    inspector.instance("flow", id, 0).await.unwrap().unwrap()
}

fn of<'a>(report: &'a InstanceReport, name: &str) -> &'a NodeReport {
    report.nodes.iter().find(|node| node.name == name).unwrap()
}

fn why<'a>(report: &'a InstanceReport, name: &str) -> &'a str {
    of(report, name).why.as_deref().unwrap_or("-")
}

#[tokio::test]
async fn each_node_and_both_of_its_halves_show_why_it_waits() {
    let (world, flow, tasks) = World::with_flow().await;
    let inspector = world.app().await.inspector();
    let (graph, child) = (Graph::new(), Graph::new());
    let first = node(&graph, "first", "value 1");
    let parts: Vec<Node<u64>> = (0..12).map(|n| node(&graph, &format!("part-{n}"), "value 1").after(&first)).collect();
    let sum = node(&graph, "sum", "sum").after(&parts).at_least(9);
    node(&child, "inner", "wait");
    graph.subgraph("child", child);
    node(&graph, "late", "value 1").delay(Duration::from_secs(3600));
    let handle = flow.start(graph.output(&sum)).id("one").await.unwrap();
    let report = seen(&inspector, "one").await;
    assert_eq!((report.state, report.unfinished, report.open, report.node_count), (WorkflowState::Running, 16, 3, 16));
    assert_eq!(why(&report, "first"), "its job waits, and no live worker has the task work");
    assert_eq!(of(&report, "first").job.as_ref().unwrap().as_str(), "~flow/one/0/1");
    assert_eq!(of(&report, "first").job_state, Some(JobState::Waiting));
    assert_eq!((why(&report, "part-3"), of(&report, "part-3").job.as_ref()), ("it waits for first", None));
    assert_eq!(
        why(&report, "sum"),
        "it waits for part-0, part-1, part-2, part-3, part-4, part-5, part-6, part-7, part-8, part-9 and 2 more; 9 of them must complete"
    );
    assert_eq!(of(&report, "sum").needs, Some(9));
    assert_eq!((why(&report, "child"), of(&report, "child").task.as_ref()), ("its graph runs as one/14.1", None));
    assert_eq!(why(&report, "late"), "its job is delayed, and no live worker has the task work");
    let inner = seen(&inspector, "one/14.1").await;
    assert_eq!((inner.state, inner.nodes.len()), (WorkflowState::Running, 1));
    let worker = world.worker().await;
    let job = tasks.handle("~flow/one/14.1/0/1").unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.is_ok_and(|state| state == JobState::Running)).await;
    assert_eq!((why(&seen(&inspector, "one/14.1").await, "inner")), "-");
    handle.cancel("enough").await.unwrap();
    eventually("it ended", PATIENCE, async || handle.status().await.unwrap().state.is_ended()).await;
    let report = seen(&inspector, "one").await;
    assert_eq!((report.code.as_deref(), report.message.as_deref()), (Some("cancelled"), Some("enough")));
    assert_eq!(seen(&inspector, "one/14.1").await.state, WorkflowState::Cancelled);
    assert!(inspector.instance("flow", "two", 0).await.unwrap().is_none());
    assert!(inspector.instance("none", "one", 0).await.unwrap().is_none());
    worker.stop().await;
}

#[tokio::test]
async fn a_node_with_a_lost_or_unreported_job_shows_it_until_recovery() {
    let (world, flow, tasks) = World::with_flow().await;
    let app = world.app().await;
    let inspector = app.inspector();
    let graph = Graph::new();
    let lost = node(&graph, "lost", "value 1");
    let untold = node(&graph, "untold", "value 1");
    let sum = node(&graph, "sum", "sum").after(&[lost, untold]).always();
    let handle = flow.start(graph.output(&sum)).id("one").await.unwrap();
    // The server lost one of them, and a worker died when another one had ended.
    let mut conn = world.redis.conn().await;
    let key = |name: &str| format!("{}:{{work}}:{name}", world.prefix);
    let () = conn.hdel(key("payload"), "~flow/one/0/1").await.unwrap();
    let () = conn.lrem(key("wait"), 0, "~flow/one/0/1").await.unwrap();
    tasks.handle("~flow/one/1/1").unwrap().cancel("by hand").await.unwrap();
    let report = seen(&inspector, "one").await;
    assert!(why(&report, "lost").ends_with("is missing and will be sent again: no worker is running"), "{report:?}");
    assert!(
        why(&report, "untold").ends_with("was cancelled, and its workflow is not updated yet: no worker is running"),
        "{report:?}"
    );
    assert!(of(&report, "untold").is_to_be_told);
    let done = app.recover_stuck_workflows().await.unwrap();
    assert_eq!(
        (done[0].workflow.as_str(), done[0].told, done[0].sent, done[0].synthesised),
        ("flow", 1, 1, 0),
        "{done:?}"
    );
    let report = seen(&inspector, "one").await;
    assert_eq!(of(&report, "untold").state, NodeState::Cancelled);
    assert_eq!(of(&report, "lost").job_state, Some(JobState::Waiting));
    let worker = world.worker().await;
    eventually("it ended", PATIENCE, async || handle.status().await.unwrap().state == WorkflowState::Failed).await;
    let report = seen(&inspector, "one").await;
    assert_eq!((report.broken_by.as_deref(), report.code.as_deref()), (Some("untold"), Some("cancelled")));
    worker.stop().await;
}

#[tokio::test]
async fn a_node_with_a_snoozed_job_shows_its_last_outcome() {
    let world = World::new();
    let app = world.app().await;
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    node(&graph, "failed", "fail");
    // The builder of the graph is ahead of the workers, which read a text.
    const AHEAD: TaskDef<u64, u64> = TaskDef::new(WORK);
    let unread = graph.node("unread", &AHEAD, 7);
    flow.start(graph.output(&unread)).id("one").await.unwrap();
    let retry = RetryPolicy::new().attempts(3).fixed(Duration::from_secs(600));
    let worker = world.worker_with(options().retry(retry)).await;
    let inspector = app.inspector();
    let failed = "its job waits for its next run after a failure (luck): no luck";
    let is_put_off = async |name: &str| of(&seen(&inspector, "one").await, name).job_state == Some(JobState::Delayed);
    eventually("both are snoozed", PATIENCE, async || is_put_off("failed").await && is_put_off("unread").await).await;
    let report = seen(&inspector, "one").await;
    assert_eq!(why(&report, "failed"), failed);
    let unread = why(&report, "unread");
    assert!(unread.starts_with("its job waits for its next run after a failure (codec): "), "{unread}");
    worker.stop().await;
    let report = seen(&inspector, "one").await;
    assert_eq!(why(&report, "failed"), format!("{failed}, and no live worker has the task work"));
}

#[tokio::test]
async fn a_node_whose_job_waits_for_a_person_shows_it() {
    let (world, flow, _) = World::with_flow().await;
    let inspector = world.app().await.inspector();
    flow.start(single("held", "value 1")).id("one").await.unwrap();
    // The first worker declares the options.
    let stall = StallOptions::new().interval(Duration::from_secs(1)).recover_running(false);
    let left_alone = || options().stall(stall.clone());
    let app = world.app().await;
    app.task(WORK, left_alone(), work).unwrap();
    inspector.pause(WORK, "not yet").await.unwrap();
    let first = TestWorker::start(app.worker());
    first.working().await;
    first.stop().await;
    inspector.resume(WORK).await.unwrap();
    let mut dead = Puppet::over(&world.redis, format!("{}:{{{WORK}}}:", world.prefix)).await;
    dead.claim_all(&["~flow/one/0/1"]).await;
    let report = seen(&inspector, "one").await;
    let next =
        "its job is held, and no live worker has the task work: the next one parks it for a person if it is silent";
    assert_eq!(why(&report, "held"), next);
    let worker = world.worker_with(left_alone()).await;
    let parked = "its worker died or went silent, and its job is parked until a person runs it again or fails it";
    eventually("it is parked", PATIENCE, async || why(&seen(&inspector, "one").await, "held") == parked).await;
    inspector.recover_running(WORK, SilentSelection::all()).await.unwrap();
    eventually("it ended", PATIENCE, async || seen(&inspector, "one").await.state == WorkflowState::Completed).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_pending_step_without_workers_shows_that_there_is_no_worker() {
    let (world, flow, _) = World::with_flow().await;
    let inspector = world.app().await.inspector();
    let graph = Graph::new();
    let first = node(&graph, "first", "value 1");
    let second = node(&graph, "second", "value 1").after(&first);
    flow.start(graph.output(&second)).id("one").await.unwrap();
    // As if a worker had died between the end of the first node and the visit of its dependents.
    let mut conn = world.redis.conn().await;
    let () = conn.hset(world.flow_key("nodes"), "one/0", "c").await.unwrap();
    let () = conn.zadd(world.flow_key("outbox"), "v one/0/1", 1).await.unwrap();
    let report = seen(&inspector, "one").await;
    let pending = "the nodes it waited for have ended, but this is not recorded yet: no worker is running";
    assert_eq!(why(&report, "second"), pending);
    // And before it was sent.
    let () = conn.hset(world.flow_key("nodes"), "one/0", "o").await.unwrap();
    let () = conn.zadd(world.flow_key("outbox"), "s one/0/1", 1).await.unwrap();
    let () = conn.hdel(world.task_key("payload"), "~flow/one/0/1").await.unwrap();
    let () = conn.del(world.task_key("wait")).await.unwrap();
    let report = seen(&inspector, "one").await;
    assert!(why(&report, "first").ends_with("or longer: no worker is running"), "{report:?}");
}

#[tokio::test]
async fn an_end_that_a_workflow_cannot_record_is_shown() {
    let (world, flow, tasks) = World::with_flow().await;
    let app = world.app().await;
    let inspector = app.inspector();
    flow.start(single("only", "value 1")).id("one").await.unwrap();
    tasks.handle("~flow/one/0/1").unwrap().cancel("by hand").await.unwrap();
    assert_eq!(inspector.workflows().await.unwrap()[0].oldest_step, None);
    let mut conn = world.redis.conn().await;
    let value = world.flow_key("value");
    let () = conn.set(&value, "foreign").await.unwrap();
    app.recover_stuck_workflows().await.unwrap();
    let seen_now = &inspector.workflows().await.unwrap()[0];
    assert!(seen_now.oldest_step.is_some() && seen_now.steps == 0, "{seen_now:?}");
    let report = seen(&inspector, "one").await;
    assert!(
        why(&report, "only").contains("is not updated yet: the server has refused this for 0 s or longer"),
        "{report:?}"
    );
    let () = conn.del(&value).await.unwrap();
    app.recover_stuck_workflows().await.unwrap();
    assert_eq!(of(&seen(&inspector, "one").await, "only").state, NodeState::Cancelled);
}

#[tokio::test]
async fn workflows_and_their_instances_are_listed_by_state() {
    let world = World::new();
    let worker = world.worker().await;
    let (flow, _) = world.producer(WorkflowOptions::new().on_failure(OnFailure::Pause)).await;
    let inspector = world.app().await.inspector();
    assert_eq!(inspector.workflows().await.unwrap(), []);
    let start = async |id: String, what: &str| {
        let (graph, child) = (Graph::new(), Graph::new());
        let inner = node(&child, "inner", what);
        let one = graph.subgraph("one", child.output(&inner));
        flow.start(graph.output(&one)).id(id).await.unwrap()
    };
    for n in 0..5 {
        start(format!("good-{n}"), "value 1").await;
    }
    start("bad".to_owned(), "fail").await;
    start("long".to_owned(), "wait").await;
    let report = async || inspector.workflows().await.unwrap().remove(0);
    eventually("all have ended, paused or still run", PATIENCE, async || {
        let found = report().await;
        (found.completed, found.paused, found.steps) == (5, 1, 0)
    })
    .await;
    let found = report().await;
    // The long one, and its child.
    assert_eq!((found.workflow.as_str(), found.running, &*found.tasks), ("flow", 2, &[WORK.to_owned()][..]));
    assert_eq!((found.fault, found.oldest_step), (None, None));
    let page = inspector.instances("flow", WorkflowState::Running, true, None, 10).await.unwrap();
    assert_eq!((page.instances.len(), page.next.as_ref()), (1, None));
    assert_eq!((page.instances[0].id.as_str(), page.instances[0].open), ("long", 1));
    for newest in [true, false] {
        let page = inspector.instances("flow", WorkflowState::Running, newest, None, 1).await.unwrap();
        assert_eq!(page.instances.len(), 1, "its child does not count for the page");
    }
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = inspector.instances("flow", WorkflowState::Completed, false, cursor.as_deref(), 2).await.unwrap();
        ids.extend(page.instances.into_iter().map(|row| row.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    ids.sort();
    assert_eq!(ids, (0..5).map(|n| format!("good-{n}")).collect::<Vec<_>>());
    assert!(inspector.instances("flow", WorkflowState::Paused, true, None, 0).await.is_err());
    let handle = inspector.workflow_handle("flow", "long").unwrap();
    handle.cancel("enough").await.unwrap();
    eventually("it ended", PATIENCE, async || handle.status().await.unwrap().state == WorkflowState::Cancelled).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_sends_no_heartbeat_before_its_workflow_lets_it_begin() {
    let world = World::alone();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let handle = flow.start(single("first", "value 1")).id("one").await.unwrap();
    let mut conn = world.redis.conn().await;
    // The workflow cannot answer whether the node may begin.
    let () = conn.rename(world.flow_key("nodes"), world.flow_key("kept")).await.unwrap();
    let () = conn.set(world.flow_key("nodes"), "x").await.unwrap();
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(0).heartbeat(Heartbeat::Manual);
    let worker = world.worker_with(options().stall(stall)).await;
    let meta = world.task_key("meta");
    let mut epoch = async || conn.hget::<_, _, Option<u64>>(&meta, "epoch").await.unwrap().unwrap_or(0);
    let held = async || {
        let (inspector, id) = (world.app().await.inspector(), "~flow/one/0/1");
        inspector.job(WORK, id, JobValues::None).await.unwrap().is_some_and(|job| job.state == JobState::Running)
    };
    eventually("the job of the node is held", PATIENCE, held).await;
    let end = epoch().await + 3;
    eventually("three intervals pass", PATIENCE, async || epoch().await >= end).await;
    assert!(world.began().is_empty());
    let () = conn.del(world.flow_key("nodes")).await.unwrap();
    let () = conn.rename(world.flow_key("kept"), world.flow_key("nodes")).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.expect("it does not end").unwrap(), 1);
    worker.stop().await;
}
