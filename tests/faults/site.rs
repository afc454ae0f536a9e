//! A task under test: its workers, its long jobs, and what Redis holds of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heartline::{
    App, Context, Event, JobError, JobHandle, JobState, RecvError, StallOptions, StopReason, Subscription, TaskOptions,
    TaskRef,
};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::support::{PATIENCE, Proxy, TestRedis, eventually};

/// The shortest interval that is allowed.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// How long a fault that is defined by its length goes on: longer than two intervals and a beat.
pub const TWO_INTERVALS: Duration = Duration::from_millis(2_400);

/// How often a handler at work shows that it is alive.
const PULSE: Duration = Duration::from_millis(50);

/// What the handlers of a task saw, and the gates that they wait at.
#[derive(Default)]
pub struct Journal {
    runs: Mutex<Vec<Run>>,
    interruptions: Mutex<Vec<String>>,
    gates: watch::Sender<BTreeSet<String>>,
}

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    pub worker: String,
    pub fence: u64,
    pub stalled_count: u32,
}

impl Journal {
    pub fn begin(&self, ctx: &Context) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(Run {
            id: ctx.id().to_string(),
            worker: ctx.worker_id().to_string(),
            fence: ctx.fence(),
            stalled_count: ctx.stalled_count(),
        });
    }

    pub fn note(&self, interruption: impl Into<String>) {
        self.interruptions.lock().unwrap_or_else(PoisonError::into_inner).push(interruption.into());
    }

    pub fn interruptions(&self) -> Vec<String> {
        self.interruptions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runs of one job, in the order in which they began.
    pub fn runs_of(&self, id: impl AsRef<str>) -> Vec<Run> {
        self.runs().into_iter().filter(|run| run.id == id.as_ref()).collect()
    }

    pub fn open(&self, gate: &str) {
        self.gates.send_modify(|gates| {
            gates.insert(gate.to_owned());
        });
    }

    pub async fn opened(&self, gate: &str) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.gates.subscribe().wait_for(|gates| gates.contains(gate)).await;
    }

    /// A handler that works until its gate opens, beats all the while, and notes whatever tells it to stop.
    pub async fn work(&self, ctx: Context, gate: String) -> Result<u64, JobError> {
        self.begin(&ctx);
        let mut pulse = tokio::time::interval(PULSE);
        loop {
            tokio::select! {
                () = self.opened(&gate) => return Ok(ctx.fence()),
                () = ctx.cancelled() => {
                    self.note(format!("{} was cancelled", ctx.id()));
                    return Err("cancelled".into());
                }
                _ = pulse.tick() => {
                    if let Err(e) = ctx.heartbeat() {
                        self.note(format!("{}: {e}", ctx.id()));
                    }
                }
            }
        }
    }
}

/// A task on one server.
#[derive(Clone)]
pub struct Site {
    url: String,
    pub task: String,
    pub journal: Arc<Journal>,
}

/// A worker process in small: an App of its own that works the task, and dispatches to it.
pub struct Employee {
    pub app: App,
    pub jobs: TaskRef<String, u64>,
    pub id: String,
    /// Whether its start is behind it.
    working: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    pub end: JoinHandle<Result<StopReason, heartline::Error>>,
}

impl Employee {
    /// Shuts the worker down in good order.
    pub async fn leave(self) {
        let _ = self.stop.send(());
        let reason = tokio::time::timeout(PATIENCE * 2, self.end).await.expect("the worker does not stop").unwrap();
        assert_eq!(reason.unwrap(), StopReason::Shutdown);
    }
}

/// A worker behind a line of its own.
pub struct Mortal {
    pub employee: Employee,
    line: Proxy,
}

impl Mortal {
    /// Its future is dropped, and nothing that it could still say gets through.
    pub async fn dies(self) {
        self.line.refuse().await;
        self.employee.end.abort();
    }
}

/// Options with an interval and four slots.
pub fn options(interval: Duration) -> TaskOptions {
    TaskOptions::new().concurrency(4).stall(StallOptions::new().interval(interval))
}

impl Site {
    pub fn new(redis: &TestRedis) -> Site {
        Site { url: redis.url(), task: redis.unique_prefix(), journal: Arc::default() }
    }

    /// An App on the server, or behind something at `url`.
    pub async fn app_at(&self, url: &str) -> App {
        App::builder().redis(url).build().await.unwrap()
    }

    /// A producer that works nothing.
    pub async fn producer(&self) -> (App, TaskRef<String, u64>) {
        let app = self.app_at(&self.url).await;
        let jobs = app.task_ref(&self.task).unwrap();
        (app, jobs)
    }

    /// A worker whose handler is [`Journal::work`].
    pub async fn hire(&self, options: TaskOptions) -> Employee {
        let employee = self.hire_at(&self.url, options).await;
        self.works(&employee).await;
        employee
    }

    /// Waits until the start of the worker is behind it.
    pub async fn works(&self, employee: &Employee) {
        let mut working = employee.working.clone();
        let started = tokio::time::timeout(PATIENCE, working.wait_for(|working| *working));
        started.await.expect("the worker does not start").expect("the worker could not start");
    }

    /// A worker that can be made to die without a word: its process seems to be gone.
    pub async fn hire_mortal(&self, redis: &TestRedis, options: TaskOptions) -> Mortal {
        let line = Proxy::start(redis.address()).await;
        let employee = self.hire_at(&line.url(), options).await;
        self.works(&employee).await;
        Mortal { employee, line }
    }

    pub async fn hire_at(&self, url: &str, options: TaskOptions) -> Employee {
        self.hire_for(url, options, |journal, ctx, gate| async move { journal.work(ctx, gate).await }).await
    }

    /// A worker with a handler of the test's own.
    pub async fn hire_for<F, Fut>(&self, url: &str, options: TaskOptions, handler: F) -> Employee
    where
        F: Fn(Arc<Journal>, Context, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<u64, JobError>> + Send + 'static,
    {
        let app = self.app_at(url).await;
        let journal = Arc::clone(&self.journal);
        let jobs = app
            .task(&self.task, options, move |ctx: Context, gate: String| handler(Arc::clone(&journal), ctx, gate))
            .unwrap();
        let worker = app.worker();
        let id = worker.id().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let (works, working) = watch::channel(false);
        let end = tokio::spawn(worker.run_until(async move {
            // Nobody asks whether to stop before there is something to stop.
            works.send_replace(true);
            // A test that failed drops its side; its worker ends with the runtime.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Employee { app, jobs, id, working, stop, end }
    }

    /// A task of an App with the handler of [`Site::hire`], which nobody works yet.
    pub fn declare_at(&self, app: &App, options: TaskOptions) -> TaskRef<String, u64> {
        let journal = Arc::clone(&self.journal);
        let handler = move |ctx: Context, gate: String| {
            let journal = Arc::clone(&journal);
            async move { journal.work(ctx, gate).await }
        };
        app.task(&self.task, options, handler).unwrap()
    }

    pub fn key(&self, suffix: &str) -> String {
        format!("heartline:{{{}}}:{suffix}", self.task)
    }

    /// A connection that is the test's own.
    pub async fn conn(&self) -> MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        let client = redis::Client::open(self.url.as_str()).unwrap();
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    async fn meta(&self, field: &str) -> u64 {
        let value: Option<u64> = self.conn().await.hget(self.key("meta"), field).await.unwrap();
        value.unwrap_or(0)
    }

    pub async fn interval_in_force(&self) -> Duration {
        Duration::from_millis(self.meta("interval").await)
    }

    pub async fn epoch(&self) -> u64 {
        self.meta("epoch").await
    }

    /// Waits until the epoch has moved on `count` times: somebody watched as many intervals, and swept.
    pub async fn epochs_pass(&self, count: u64) {
        let end = self.epoch().await + count;
        eventually("epochs pass", PATIENCE * 2, async || self.epoch().await >= end).await;
    }

    /// Waits until each of the jobs has begun a run.
    pub async fn started(&self, jobs: &[JobHandle<u64>]) {
        eventually("every job has started", PATIENCE, async || {
            jobs.iter().all(|job| !self.journal.runs_of(job.id()).is_empty())
        })
        .await;
    }

    /// All that was ever found stalled: the entries of the stream, as text.
    pub async fn stalls(&self) -> Option<String> {
        let key = self.key("stalls");
        crate::support::dump(&mut self.conn().await, &key).await.remove(&key)
    }

    /// Each of the jobs ran once, undisturbed, and its outcome is the one that is recorded; nothing was ever stalled.
    pub async fn each_ran_once(&self, jobs: &[JobHandle<u64>]) {
        let (_app, task) = self.producer().await;
        for job in jobs {
            let value = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
            let runs = self.journal.runs_of(job.id());
            assert_eq!(runs.iter().map(|run| run.fence).collect::<Vec<_>>(), [value], "{runs:?}");
            let stored = task.job(job.id()).await.unwrap();
            assert_eq!((stored.state, stored.failed_attempts, stored.stalled_count), (JobState::Completed, 0, 0));
        }
        assert_eq!(self.journal.interruptions(), [""; 0]);
        assert_eq!(self.stalls().await, None);
    }

    /// Nothing is held, nothing waits, and `completed` jobs have ended.
    pub async fn nothing_is_left_but(&self, completed: usize) {
        let (_app, task) = self.producer().await;
        let counts = task.counts().await.unwrap();
        assert_eq!(counts.completed, completed as u64, "{counts:?}");
        assert_eq!(
            [counts.waiting, counts.delayed, counts.running, counts.failed, counts.cancelled],
            [0; 5],
            "{counts:?}"
        );
        let mut conn = self.conn().await;
        for set in ["active", "candidates", "cancelling"] {
            assert!(!conn.exists::<_, bool>(self.key(set)).await.unwrap(), "{set} is not empty");
        }
    }

    /// The SHA1 of a script, as the server gives it.
    pub async fn sha(&self, script: &str) -> String {
        let source = heartline::testing::scripts().into_iter().find(|source| source.name == script).unwrap();
        redis::cmd("SCRIPT").arg("LOAD").arg(source.source).query_async(&mut self.conn().await).await.unwrap()
    }
}

/// The names of the events by job, up to the end of the job `last`.
pub async fn events_until(events: &mut Subscription<Event>, last: &str) -> BTreeMap<String, Vec<&'static str>> {
    let mut seen: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let reading = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    seen.entry(event.id().to_string()).or_default().push(event.name());
                    if event.id().as_str() == last && event.is_terminal() {
                        return;
                    }
                }
                Err(e @ RecvError::Lagged(_)) => panic!("{e}"),
                Err(e) => panic!("{e}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the last job does not end");
    seen
}
