//! Jobs and outcomes that must be on replicas before they count.

use std::time::{Duration, Instant};

use heartline::testing::RedisServer;
use heartline::{
    App, CancelOutcome, Context, Durability, Error, Graph, JobError, JobState, TaskDef, TaskOptions, TaskRef,
    WorkflowOptions, WorkflowState,
};

use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, Warnings, eventually};

/// Enough for a reachable replica on a busy machine.
const COPY: Durability = Durability::Replicated { replicas: 1, within: Duration::from_secs(10) };

/// For an unreachable replica.
const SOON: Durability = Durability::Replicated { replicas: 1, within: Duration::from_millis(300) };

const EXPORT: TaskDef<String, ()> = TaskDef::new("export");

/// A primary and its replica.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
}

async fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]).query_async(&mut conn).await.unwrap()
}

impl Pair {
    async fn start() -> Pair {
        let start = || RedisServer::builder().arg("--repl-diskless-sync-delay").arg("0").start().unwrap();
        let (primary, replica) = (start(), start());
        let () = ask(&replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
        let client = redis::Client::open(primary.url()).unwrap();
        let mut conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
        // A replica may be online for a second before it acknowledges the first write.
        let follows = async || {
            let mut wait = redis::pipe();
            wait.incr("probe", 1).ignore().cmd("WAIT").arg(1).arg(1000);
            let (acked,): (u32,) = wait.query_async(&mut conn).await.unwrap();
            acked == 1
        };
        eventually("the replica follows", PATIENCE, follows).await;
        Pair { primary, replica }
    }

    async fn app(&self) -> App {
        App::builder().redis(self.primary.url()).prefix("pair").build().await.unwrap()
    }

    async fn has_copy(&self, id: &str) -> bool {
        ask(&self.replica, &["HEXISTS", "pair:{export}:payload", id]).await
    }
}

fn is_not_replicated<T>(answer: Result<T, Error>) -> bool {
    matches!(answer, Err(Error::NotReplicated { acked: 0, replicas: 1 }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatch_waits_for_a_replica_and_reports_a_missing_one() {
    let pair = Pair::start().await;
    let app = pair.app().await;
    let export: TaskRef<String, ()> = app.task_ref("export").unwrap();
    export.dispatch("x".into()).id("a").durability(COPY).await.unwrap();
    assert!(pair.has_copy("a").await, "at once");
    // A large job has a connection of its own.
    export.dispatch("x".repeat(600_000)).id("large").durability(COPY).await.unwrap();
    assert!(pair.has_copy("large").await);

    pair.replica.freeze().unwrap();
    let begun = Instant::now();
    assert!(is_not_replicated(export.dispatch("x".into()).id("b").durability(SOON).await));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // On a connection without writes, WAIT would count all replicas.
    assert!(is_not_replicated(export.dispatch("x".into()).id("b").durability(SOON).await), "an existing job");
    let fresh = pair.app().await.task_ref::<String, ()>("export").unwrap();
    assert!(is_not_replicated(fresh.dispatch("x".into()).id("b").durability(SOON).await), "over a new connection");
    assert!(is_not_replicated(export.dispatch("x".repeat(600_000)).id("large").durability(SOON).await));
    // Other jobs do not wait for it, although they go to the same server.
    let slow = Durability::Replicated { replicas: 1, within: Duration::from_secs(5) };
    let waits = tokio::spawn(export.dispatch("x".into()).durability(slow).into_future());
    let begun = Instant::now();
    export.dispatch("x".into()).id("plain").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3) && export.counts().await.unwrap().waiting >= 4);

    pair.replica.thaw().unwrap();
    waits.await.unwrap().unwrap();
    let again = export.dispatch("x".into()).id("b").durability(COPY).await.unwrap();
    assert_eq!(again.existed(), Some(true));
    assert!(pair.has_copy("b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_share_a_wait_and_are_written_without_a_replica() {
    let pair = Pair::start().await;
    let app = pair.app().await;
    let declare = |app: &App, durability: Durability| {
        let handler = |_: Context, _: String| async { Ok::<_, JobError>(()) };
        app.task("export", TaskOptions::new().durability(durability), handler).unwrap()
    };
    let export = declare(&app, COPY);
    let ids = |from: usize| (from..from + 300).map(|number| (format!("{number}"), "x".to_owned()));
    assert_eq!(export.dispatch_many_with_ids(ids(0)).await.unwrap().len(), 300);
    assert!(pair.has_copy("299").await);
    pair.replica.freeze().unwrap();
    let soon = declare(&pair.app().await, SOON);
    match soon.dispatch_many_with_ids(ids(300)).await {
        Err(Error::Partial { dispatched, source }) => {
            assert!(dispatched.len() == 300 && matches!(*source, Error::NotReplicated { .. }), "{source:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(export.counts().await.unwrap().waiting, 600);
    pair.replica.thaw().unwrap();
    export.dispatch_many_with_ids(ids(300)).await.unwrap();
    assert!(pair.has_copy("599").await);
    assert_eq!(export.counts().await.unwrap().waiting, 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_without_a_replica_is_kept_and_reported_once() {
    let warnings = Warnings::capture();
    let pair = Pair::start().await;
    let app = pair.app().await;
    let copy = Durability::Replicated { replicas: 1, within: Duration::from_secs(2) };
    let options = TaskOptions::new().durability(copy).settle_replicated(true);
    let export = app.task("export", options, |_: Context, n: u64| async move { Ok::<_, JobError>(n) }).unwrap();
    let worker = app.worker();
    let monitor = worker.monitor();
    let worker = TestWorker::start(worker);
    worker.working().await;
    assert_eq!(export.dispatch(7).durability(COPY).await.unwrap().result().await.unwrap(), 7);
    assert_eq!(monitor.stats().tasks[0].not_replicated, 0);
    pair.replica.freeze().unwrap();
    for n in 1..4 {
        let job = export.dispatch(n).durability(Durability::Memory).await.unwrap();
        assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), n);
    }
    eventually("all are counted", PATIENCE, async || monitor.stats().tasks[0].not_replicated == 3).await;
    let told = warnings.all().into_iter().filter(|line| line.contains("fewer replicas")).count();
    assert_eq!(told, 1, "{:?}", warnings.all());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_waits_for_a_replica_and_fails_without_one() {
    let pair = Pair::start().await;
    let app = pair.app().await;
    let ended =
        async |id: &str| -> Option<f64> { ask(&pair.replica, &["ZSCORE", "pair:{export}:cancelled", id]).await };
    let handler = |_: Context, _: String| async { Ok::<_, JobError>(()) };
    let export = app.task("export", TaskOptions::new().durability(SOON), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    worker.stop().await;
    let job = async |id: &str| export.dispatch("x".into()).id(id).durability(Durability::Memory).await.unwrap();
    let (by_task, by_call, plain) = (job("by-task").await, job("by-call").await, job("plain").await);
    assert_eq!(by_call.cancel("no").durability(COPY).await.unwrap(), CancelOutcome::Cancelled);
    assert!(ended("by-call").await.is_some(), "at once");

    pair.replica.freeze().unwrap();
    let begun = Instant::now();
    assert!(is_not_replicated(by_task.cancel("no").await), "by the option of the task");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(by_task.state().await.unwrap(), JobState::Cancelled, "the cancel is in place");
    assert!(is_not_replicated(by_task.cancel("no").await), "the same call waits again");
    let slow = Durability::Replicated { replicas: 1, within: Duration::from_secs(5) };
    let waits = tokio::spawn(async move { by_call.cancel("no").durability(slow).await });
    let begun = Instant::now();
    plain.cancel("no").durability(Durability::Memory).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "later calls do not wait");

    pair.replica.thaw().unwrap();
    let again = CancelOutcome::AlreadyTerminal(JobState::Cancelled);
    assert_eq!(waits.await.unwrap().unwrap(), again);
    assert_eq!(by_task.cancel("no").durability(COPY).await.unwrap(), again);
    assert!(ended("by-task").await.is_some());
    let unknown = export.handle("unknown").unwrap().cancel("no").durability(COPY).await;
    assert!(matches!(unknown, Err(Error::JobNotFound { .. })), "{unknown:?}");
}

/// A graph with this many independent nodes.
fn graph(nodes: usize) -> Graph<()> {
    let graph = Graph::new();
    (0..nodes).for_each(|number| drop(graph.node(format!("n{number}"), &EXPORT, "x".to_owned())));
    graph
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_start_and_its_cancel_wait_for_a_replica() {
    let pair = Pair::start().await;
    let app = pair.app().await;
    let flow = app.workflow::<()>("flow", WorkflowOptions::new().durability(SOON)).unwrap();
    let head =
        async |id: &str| -> Option<String> { ask(&pair.replica, &["HGET", "pair:{flow:flow}:instances", id]).await };
    // The large graph is written in parts.
    for (id, nodes) in [("small", 3), ("large", 700)] {
        let start = |id: &str| flow.start(graph(nodes)).id(id);
        start(&format!("{id}-1")).durability(COPY).await.unwrap();
        assert!(head(&format!("{id}-1")).await.is_some(), "{id}: at once");

        pair.replica.freeze().unwrap();
        assert!(is_not_replicated(start(id).await), "{id}: by the option of the workflow");
        assert!(is_not_replicated(start(id).await), "{id}: the same call waits again");
        let status = flow.handle(id).unwrap().status().await.unwrap();
        assert_eq!((status.state, status.open), (WorkflowState::Running, nodes as u64), "{id}: it has started");
        let waiting = app.task_ref::<String, ()>("export").unwrap().counts().await.unwrap().waiting;
        assert!(waiting >= 2 * nodes as u64, "{id}: its jobs are dispatched: {waiting}");

        pair.replica.thaw().unwrap();
        let instance = start(id).durability(COPY).await.unwrap();
        assert_eq!(instance.existed(), Some(true));
        let before = head(id).await.expect("the replica has it");

        pair.replica.freeze().unwrap();
        assert!(is_not_replicated(instance.cancel("no").await), "{id}");
        assert_eq!(instance.status().await.unwrap().state, WorkflowState::Cancelled, "{id}: the cancel is in place");
        pair.replica.thaw().unwrap();
        assert_eq!(instance.cancel("no").durability(COPY).await.unwrap(), WorkflowState::Cancelled);
        assert_ne!(head(id).await.expect("the replica has it"), before, "{id}");
    }
}

#[tokio::test]
async fn wrong_replica_settings_are_reported_together() {
    let pair = TestRedis::start();
    let app = App::builder().redis(pair.url()).build().await.unwrap();
    let none = Durability::Replicated { replicas: 0, within: Duration::ZERO };
    let handler = |_: Context, _: u64| async { Ok::<_, JobError>(()) };
    let e = app.task("export", TaskOptions::new().durability(none), handler).unwrap_err().to_string();
    assert!(e.contains("durability.replicas") && e.contains("durability.within"), "{e}");
    let e = app.task("export", TaskOptions::new().settle_replicated(true), handler).unwrap_err().to_string();
    assert!(e.contains("settle_replicated"), "{e}");
    let jobs = app.task_ref::<u64, ()>("export").unwrap();
    assert!(matches!(jobs.dispatch(1).durability(none).await, Err(Error::Config(_))));
    assert!(matches!(jobs.handle("a").unwrap().cancel("no").durability(none).await, Err(Error::Config(_))));
    let e = app.workflow::<()>("flow", WorkflowOptions::new().durability(none)).unwrap_err().to_string();
    assert!(e.contains("durability.replicas") && e.contains("durability.within"), "{e}");
    let flow = app.workflow::<()>("flow", WorkflowOptions::new()).unwrap();
    assert!(matches!(flow.start(graph(1)).durability(none).await, Err(Error::Config(_))));
}
