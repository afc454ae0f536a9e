//! A server whose output buffers are smaller than its replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use heartline::{
    Context, Error, Graph, JobError, RetryPolicy, StallOptions, TaskDef, TaskOptions, TaskRef, Workflow,
    WorkflowOptions, WorkflowState, codes,
};
use redis::AsyncCommands;
use tokio::sync::Semaphore;

use crate::faults::ground::alone;
use crate::faults::watch::{KIB, text};
use crate::support::task::TestTask;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, Warnings, eventually};
use crate::workflows::world::{self, WORK, World};

const WORKS: TaskDef<String, u64> = TaskDef::new(WORK);
const LENGTH: TaskDef<usize, String> = TaskDef::new("length");

async fn small_buffers(redis: &TestRedis) {
    let mut config = redis::cmd("CONFIG");
    config.arg("SET").arg("client-output-buffer-limit").arg("normal 256kb 128kb 1");
    config.query_async::<()>(&mut redis.conn().await).await.unwrap();
}

fn lengths(test: &TestTask, app: &heartline::App) -> TaskRef<String, usize> {
    let retry = RetryPolicy::new().attempts(1);
    let options =
        TaskOptions::new().concurrency(4).retry(retry).stall(StallOptions::new().interval(Duration::from_secs(30)));
    app.task(&test.name, options, |_: Context, input: String| async move { Ok::<_, JobError>(input.len()) }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_the_server_cannot_send_delays_no_other() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let task = lengths(&test, &app);
    small_buffers(&redis).await;
    let mut unsent = Vec::new();
    // One payload comes with a claim, the other is read separately at once.
    for bytes in [400 * KIB, 700 * KIB] {
        unsent.push(task.dispatch(text(bytes)).await.unwrap());
    }
    let small: Vec<_> = task.dispatch_many((0..20).map(|_| text(100))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for job in small {
        let length = tokio::time::timeout(PATIENCE, job.result()).await.expect("a small job waits").unwrap();
        assert_eq!(length, 98);
    }
    for job in unsent {
        let ended = tokio::time::timeout(PATIENCE * 3, job.result()).await.expect("it is tried repeatedly");
        let Err(Error::JobFailed(failure)) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.code, codes::PAYLOAD_UNREADABLE, "{failure}");
        assert!(failure.message.contains("client-output-buffer-limit"), "{failure}");
    }
    let lines = warnings.all();
    let told =
        lines.iter().filter(|line| line.contains(&test.name) && line.contains("closes the connection during answers"));
    assert_eq!(told.count(), 1, "{lines:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_that_only_fit_alone_are_read_one_by_one() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let task = lengths(&test, &app);
    small_buffers(&redis).await;
    let jobs = task.dispatch_many((0..12).map(|_| text(100 * KIB))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for job in jobs {
        let length = tokio::time::timeout(PATIENCE, job.result()).await.expect("it is never claimed").unwrap();
        assert_eq!(length, 100 * KIB - 2);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_the_server_cannot_send_delays_no_other() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let options = TaskOptions::new().concurrency(4).stall(StallOptions::new().interval(Duration::from_secs(30)));
    let handler = |_: Context, bytes: usize| async move { Ok::<_, JobError>(text(bytes)) };
    let task: TaskRef<usize, String> = app.task(&test.name, options, handler).unwrap();
    small_buffers(&redis).await;
    let worker = TestWorker::start(app.worker());
    let unsent = task.dispatch(400 * KIB).await.unwrap();
    let sent = task.dispatch_many([100, 100 * KIB, 100, 100 * KIB, 100 * KIB]).await.unwrap();
    let waits = tokio::spawn(async move { unsent.result().await });
    for job in sent {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it waits for another result").unwrap();
    }
    let ended = tokio::time::timeout(PATIENCE * 3, waits).await.expect("it is read repeatedly").unwrap();
    assert!(matches!(ended, Err(Error::Connect { .. })), "{:?}", ended.map(|value| value.len()));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_with_large_headers_are_claimed_in_parts() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let options = TaskOptions::new().concurrency(400).stall(StallOptions::new().interval(Duration::from_secs(30)));
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len()) };
    let task: TaskRef<String, usize> = app.task(&test.name, options, handler).unwrap();
    small_buffers(&redis).await;
    let mut jobs = Vec::new();
    for _ in 0..200 {
        jobs.push(task.dispatch(text(10)).header("trace", text(3 * KIB)).await.unwrap());
    }
    let worker = TestWorker::start(app.worker());
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it is never claimed").unwrap();
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_input_that_the_server_cannot_send_delays_no_other() {
    let warnings = Warnings::capture();
    let world = World::alone();
    small_buffers(&world.redis).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let large = format!("sum {}", text(400 * KIB));
    // One node opens with the start, the other after a node.
    let graph = Graph::new();
    graph.node("large", &WORKS, large.clone());
    let small = graph.node("small", &WORKS, "value 2".to_owned());
    let first = flow.start(graph.output(&small)).id("first").await.unwrap();
    let graph = Graph::new();
    let root = graph.node("root", &WORKS, "value 1".to_owned());
    graph.node("later", &WORKS, large).after(&root);
    let small = graph.node("small", &WORKS, "value 2".to_owned()).after(&root);
    let second = flow.start(graph.output(&small)).id("second").await.unwrap();
    let worker = world.worker_with(world::options().concurrency(8)).await;
    for (handle, node) in [(&first, "large"), (&second, "later")] {
        eventually("the small node ran", PATIENCE, async || {
            handle.node::<u64>("small").await.unwrap().is_some_and(|value| value.unwrap() == 2)
        })
        .await;
        let ended = tokio::time::timeout(PATIENCE * 3, handle.result()).await.expect("it is tried repeatedly");
        let Err(Error::WorkflowFailed { node: failed, failure, .. }) = ended else { panic!("{ended:?}") };
        assert_eq!((&*failed, &*failure.code), (node, codes::PAYLOAD_UNREADABLE), "{failure}");
        assert!(failure.message.contains("client-output-buffer-limit"), "{failure}");
    }
    assert_eq!(world.began().len(), 3);
    let lines = warnings.all();
    let told = lines.iter().filter(|line| line.contains("each time it sends the input of a node"));
    let told: Vec<&String> = told.filter(|line| line.contains("second")).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_inputs_that_only_fit_alone_are_read_one_by_one() {
    let world = World::alone();
    small_buffers(&world.redis).await;
    let worker = world.worker_with(world::options().concurrency(8)).await;
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let root = graph.node("root", &WORKS, "value 1".to_owned());
    let zeros = |bytes: usize| format!("value {}1", "0".repeat(bytes));
    let inputs = (0..24).map(|n| zeros(if n < 12 { 100 * KIB } else { 3 * KIB }));
    let parts: Vec<_> =
        inputs.enumerate().map(|(n, input)| graph.node(format!("part-{n}"), &WORKS, input).after(&root)).collect();
    let sum = graph.node("sum", &WORKS, "sum".to_owned()).after(&parts);
    let handle = flow.start(graph.output(&sum)).id("one").await.unwrap();
    let sum = tokio::time::timeout(PATIENCE, handle.result()).await.expect("a node is never sent").unwrap();
    assert_eq!(sum, 24);
    worker.stop().await;
}

/// Handlers that began, and the permits that each of them needs to end.
struct Gate {
    began: AtomicUsize,
    permits: Semaphore,
}

impl Gate {
    fn new(permits: usize) -> Arc<Gate> {
        Arc::new(Gate { began: AtomicUsize::new(0), permits: Semaphore::new(permits) })
    }
}

/// A worker whose handlers return that many bytes, each with a permit.
async fn texts(world: &World, gate: &Arc<Gate>) -> (TestWorker, Workflow<String>) {
    let (app, gate) = (world.app().await, Arc::clone(gate));
    let handler = move |_: Context, bytes: usize| {
        let gate = Arc::clone(&gate);
        async move {
            gate.began.fetch_add(1, Ordering::SeqCst);
            gate.permits.acquire().await.unwrap().forget();
            Ok::<_, JobError>(text(bytes))
        }
    };
    let _: TaskRef<usize, String> = app.task("length", world::options().concurrency(8), handler).unwrap();
    (TestWorker::start(app.worker()), app.workflow("flow", WorkflowOptions::new()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_the_server_cannot_send_ends_the_wait() {
    let world = World::alone();
    small_buffers(&world.redis).await;
    let (worker, flow) = texts(&world, &Gate::new(2)).await;
    let start = async |bytes: usize, id: &str| {
        let graph = Graph::new();
        let node = graph.node("text", &LENGTH, bytes);
        flow.start(graph.output(&node)).id(id).await.unwrap()
    };
    let (unsent, sent) = (start(400 * KIB, "unsent").await, start(100 * KIB, "sent").await);
    let value = tokio::time::timeout(PATIENCE, sent.result()).await.expect("it waits for another output").unwrap();
    assert_eq!(value.len(), 100 * KIB - 2);
    let ended = tokio::time::timeout(PATIENCE * 3, unsent.result()).await.expect("it is read repeatedly");
    assert!(matches!(ended, Err(Error::Connect { .. })), "{:?}", ended.map(|value| value.len()));
    assert!(matches!(unsent.status().await, Err(Error::Connect { .. })));
    let inspector = world.app().await.inspector();
    let completed = inspector.instances("flow", WorkflowState::Completed, true, None, 10).await.unwrap();
    assert_eq!(completed.instances.len(), 2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_a_workflow_cannot_get_fails_only_its_node() {
    let world = World::alone();
    let gate = Gate::new(0);
    let (worker, flow) = texts(&world, &gate).await;
    let graph = Graph::new();
    graph.node("unsent", &LENGTH, 400 * KIB);
    let sent = graph.node("sent", &LENGTH, 100 * KIB);
    let small = graph.node("small", &LENGTH, 100);
    let last = graph.node("last", &LENGTH, 10).after(&[sent, small]);
    let handle = flow.start(graph.output(&last)).id("one").await.unwrap();
    let app = world.app().await;
    let jobs = app.task_ref::<usize, String>("length").unwrap();
    eventually("all handlers began", PATIENCE, async || gate.began.load(Ordering::SeqCst) == 3).await;
    // The workflow cannot record the ends of its nodes for some time.
    let mut conn = world.redis.conn().await;
    let key = |name: &str| format!("{}:{{flow:flow}}:{name}", world.prefix);
    let () = conn.rename(key("nodes"), key("kept")).await.unwrap();
    let () = conn.set(key("nodes"), "x").await.unwrap();
    gate.permits.add_permits(4);
    eventually("all jobs ended", PATIENCE, async || jobs.counts().await.unwrap().completed == 3).await;
    // This worker has the values in memory; another one has to read them.
    worker.stop().await;
    small_buffers(&world.redis).await;
    let () = conn.rename(key("kept"), key("nodes")).await.unwrap();
    let (worker, _) = texts(&world, &gate).await;
    let _ = app.inspector().recover_workflow("flow").await;
    let ended = tokio::time::timeout(PATIENCE * 3, handle.result()).await.expect("it is read repeatedly");
    let Err(Error::WorkflowFailed { node, failure, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!((&*node, &*failure.code), ("unsent", codes::RESULT_NOT_AVAILABLE), "{failure}");
    assert!(failure.message.contains("client-output-buffer-limit"), "{failure}");
    let last = handle.node::<String>("last").await.unwrap().expect("the last node has not ended");
    assert_eq!(last.unwrap().len(), 8);
    worker.stop().await;
}
