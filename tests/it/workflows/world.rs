//! A few tasks that record each run of a handler, and their workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    App, Context, Graph, JobError, Node, RetryPolicy, StallOptions, TaskDef, TaskOptions, TaskRef, Workflow,
    WorkflowOptions,
};

use crate::support::task::built;
use crate::support::worker::TestWorker;
use crate::support::{TestRedis, eventually};

/// The input of a handler: `value N` returns N, `sum` adds up its inputs, `fail` fails, `wait` runs until it is
/// cancelled.
pub const WORK: &str = "work";

pub const TASK: TaskDef<String, u64> = TaskDef::new(WORK);

pub fn node(graph: &Graph<()>, name: &str, what: &str) -> Node<u64> {
    graph.node(name, &TASK, what.to_owned())
}

/// A graph of one node.
pub fn single(name: &str, what: &str) -> Graph<u64> {
    let graph = Graph::new();
    let only = node(&graph, name, what);
    graph.output(&only)
}

pub struct World {
    pub redis: Arc<TestRedis>,
    pub prefix: String,
    /// The ids of the jobs whose handlers began, in order.
    pub runs: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new() -> World {
        let redis = TestRedis::shared();
        let prefix = redis.unique_prefix();
        World { redis, prefix, runs: Arc::default() }
    }

    /// With a producer.
    pub async fn with_flow() -> (World, Workflow<u64>, TaskRef<String, u64>) {
        let world = World::new();
        let (flow, tasks) = world.producer(WorkflowOptions::new()).await;
        (world, flow, tasks)
    }

    /// On a private server.
    pub fn alone() -> World {
        let redis = Arc::new(TestRedis::start());
        let prefix = redis.unique_prefix();
        World { redis, prefix, runs: Arc::default() }
    }

    /// Waits until all outboxes are empty, of the workflows and of the tasks.
    pub async fn outboxes_are_empty(&self, within: Duration) {
        eventually("the outboxes are empty", within, async || {
            !self.redis.dump(&self.prefix).await.keys().any(|key| key.ends_with(":outbox"))
        })
        .await;
    }

    /// A key of the workflow.
    pub fn flow_key(&self, name: &str) -> String {
        format!("{}:{{flow:flow}}:{name}", self.prefix)
    }

    /// A key of the task of the nodes.
    pub fn task_key(&self, name: &str) -> String {
        format!("{}:{{{WORK}}}:{name}", self.prefix)
    }

    pub async fn app(&self) -> App {
        built(&self.redis.app_url(), &self.prefix).await
    }

    /// A producer, with its definition and the task.
    pub async fn producer(&self, options: WorkflowOptions) -> (Workflow<u64>, TaskRef<String, u64>) {
        let app = self.app().await;
        (app.workflow("flow", options).unwrap(), app.task_ref(WORK).unwrap())
    }

    pub async fn worker(&self) -> TestWorker {
        self.worker_with(options()).await
    }

    pub async fn worker_with(&self, options: TaskOptions) -> TestWorker {
        let app = self.app().await;
        let runs = Arc::clone(&self.runs);
        let handler = move |ctx: Context, what: String| {
            runs.lock().unwrap().push(ctx.id().to_string());
            work(ctx, what)
        };
        app.task(WORK, options, handler).unwrap();
        let worker = TestWorker::start(app.worker());
        worker.working().await;
        worker
    }

    /// The numbers of the nodes whose handlers began, in order.
    pub fn began(&self) -> Vec<u32> {
        let runs = self.runs.lock().unwrap();
        runs.iter().map(|id| id.rsplit('/').nth(1).unwrap().parse().unwrap()).collect()
    }
}

pub fn options() -> TaskOptions {
    let stall = StallOptions::new().interval(Duration::from_secs(1));
    TaskOptions::new().concurrency(8).retry(RetryPolicy::new().attempts(1)).stall(stall)
}

pub async fn work(ctx: Context, what: String) -> Result<u64, JobError> {
    match what.split_once(' ').unwrap_or((&what, "")) {
        ("value", number) => Ok(number.parse().unwrap()),
        ("sum", _) => {
            let inputs = ctx.upstreams::<u64>().await?;
            Ok(inputs.into_iter().filter_map(|(_, value)| value.ok()).sum())
        }
        ("named", name) => Ok(ctx.upstream::<u64>(name).await? + 1),
        ("fail", _) => Err(JobError::new("no luck").with_code("luck")),
        ("wait", _) => {
            ctx.cancelled().await;
            Err(JobError::new("stopped"))
        }
        _ => Err(JobError::new(format!("what is {what}?"))),
    }
}
