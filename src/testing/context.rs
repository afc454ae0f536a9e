//! Contexts for tests of handlers, without a worker or Redis.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::clock;
use crate::codec::Codecs;
use crate::error::{Error, NoteError};
use crate::job::child_graph;
use crate::job::failure::StoredError;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::progress::JobProgress;
use crate::job::tick::Tick;
use crate::options::overrides::Headers;
use crate::options::stall::{Heartbeat, OnLockRisk};
use crate::runtime::context::{Context, Run};
use crate::runtime::held_jobs::{Flags, Guard, HeldJob};
use crate::runtime::notes::encoded_checkpoint;
use crate::stall::action::StallReason;
use crate::stall::recovery::Recovery;
use crate::worker_id::WorkerId;

/// Builds a [`Context`] for a test of a handler, and changes it as a worker would. Made by [`Context::for_test`].
///
/// ```
/// use heartline::{Context, Interrupted, JobError};
///
/// async fn export(ctx: Context, pages: u32) -> Result<u32, JobError> {
///     for _ in 0..pages {
///         ctx.heartbeat()?;
///     }
///     Ok(ctx.attempt() * pages)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let test = Context::for_test().attempt(2);
/// assert_eq!(export(test.context(), 3).await.unwrap(), 6);
/// test.cancel();
/// let stopped = export(test.context(), 3).await.unwrap_err();
/// assert_eq!(stopped.downcast_ref(), Some(&Interrupted::Cancelled));
/// # }
/// ```
#[derive(Clone)]
pub struct TestContext(Run);

impl Context {
    /// A context for a test of a handler, without Redis. By default it is a first attempt that nothing interrupts.
    #[must_use]
    pub fn for_test() -> TestContext {
        TestContext(Run {
            held: held(JobId::generate()),
            task: "test".into(),
            worker: WorkerId::generate(),
            failed_attempts: 0,
            max_attempts: 1,
            stalled_count: 0,
            snoozed_count: 0,
            recovery: None,
            is_hook: false,
            dispatched_at: SystemTime::now(),
            headers: Headers::new(),
            of_instance: None,
            tick: None,
            data: Arc::default(),
            note_store: None,
            given: Vec::new(),
        })
    }
}

/// A job that is not at risk for as long as any test takes.
fn held(id: JobId) -> Arc<HeldJob> {
    let (now, interval) = (clock::now(), Duration::from_secs(24 * 3600));
    let (heartbeat, on_risk, cancel_grace) = (Heartbeat::Automatic, OnLockRisk::Continue, Duration::ZERO);
    let guard = Guard { heartbeat, on_risk, interval, cancel_grace };
    let last_tick = Arc::new(AtomicU64::new(now.as_millis()));
    Arc::new(HeldJob::new(id, 1, guard, now, last_tick, Arc::default(), Arc::default()))
}

impl TestContext {
    /// The id of the job. Defaults to a generated one.
    ///
    /// # Errors
    /// [`Error::Config`] if the id is not valid.
    pub fn id(mut self, id: impl AsRef<str>) -> Result<TestContext, Error> {
        self.0.held = held(JobId::parse(id.as_ref())?);
        Ok(self)
    }

    /// The name of the task. Defaults to `test`.
    #[must_use]
    pub fn task(mut self, name: &str) -> TestContext {
        self.0.task = name.into();
        self
    }

    /// Which attempt this is, from 1; 0 counts as 1. Defaults to 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> TestContext {
        self.0.failed_attempts = attempt.max(1) - 1;
        self.0.max_attempts = self.0.max_attempts.max(attempt);
        self
    }

    /// How many runs may fail. Defaults to the number of the attempt.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> TestContext {
        self.0.max_attempts = attempts;
        self
    }

    /// How often the job stalled before. Defaults to 0.
    #[must_use]
    pub fn stalled_count(mut self, count: u32) -> TestContext {
        self.0.stalled_count = count;
        self
    }

    /// How often the job was snoozed before. Defaults to 0.
    #[must_use]
    pub fn snoozed_count(mut self, count: u32) -> TestContext {
        self.0.snoozed_count = count;
        self
    }

    /// Makes this run follow the recovery of the job from another worker. The job has then stalled at least once, unless the reason is
    /// `Requeued`.
    #[must_use]
    pub fn recovered(mut self, reason: StallReason) -> TestContext {
        let requeued_count = u32::from(reason == StallReason::Requeued);
        self.0.stalled_count = self.0.stalled_count.max(1 - requeued_count);
        let (worker, stalled_count) = (Some(WorkerId::generate()), self.0.stalled_count);
        self.0.recovery = Some(Recovery { reason, worker, stalled_count, requeued_count, at: SystemTime::now() });
        self
    }

    /// Adds a header to the job.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> TestContext {
        self.0.headers.insert(name.into(), value.into());
        self
    }

    /// Makes the job one of a schedule: it is for the tick at `due`, and the tick before was at `previous`.
    #[must_use]
    pub fn tick(mut self, schedule: &str, due: SystemTime, previous: Option<SystemTime>) -> TestContext {
        self.0.tick = Some(Tick { schedule: schedule.to_owned(), due, previous });
        self
    }

    /// Adds a value for handlers, as [`AppBuilder::state`](crate::AppBuilder::state) does.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> TestContext {
        Arc::make_mut(&mut self.0.data).insert(value);
        self
    }

    /// Makes the job a node of a workflow that waited for the given node, which completed. The id of the job is then that of a node.
    ///
    /// [`Context::upstream`] and [`upstreams`](Context::upstreams) read the value, and [`Context::expand`] is allowed.
    ///
    /// # Errors
    /// [`Error::Codec`] if the value cannot be encoded as JSON.
    pub fn upstream<T: Serialize + ?Sized>(self, node: impl Into<String>, value: &T) -> Result<TestContext, Error> {
        let what = "the value of the node".to_owned();
        let json = serde_json::to_vec(value).map_err(|source| Error::Codec { what, source })?;
        Ok(self.with_node(node.into(), Ok(json)))
    }

    /// Like [`upstream`](TestContext::upstream), for a node that failed with this code and message. The code `skipped` means that the
    /// node did not run, and `not_ended` that it has not ended.
    #[must_use]
    pub fn failed_upstream(self, node: impl Into<String>, code: &str, message: &str) -> TestContext {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.with_node(node.into(), Err(StoredError { code, message }))
    }

    fn with_node(mut self, name: String, said: Result<Vec<u8>, StoredError>) -> TestContext {
        let (definition, instance) = ("test".to_owned(), "test".to_owned());
        self.0.held = held(NodeId { definition, instance, node: 0, run: 1 }.job_id());
        self.0.given.push((name, said));
        self
    }

    /// The names of the nodes of the graph that the handler passed to [`Context::expand`]. `None` if it passed none.
    #[must_use]
    pub fn expanded(&self) -> Option<Vec<String>> {
        let (shape, _) = child_graph::read(&self.0.held.notes.grown()?)?;
        Some(shape.nodes.into_iter().map(|node| node.name).collect())
    }

    /// Sets the checkpoint of an earlier run, as [`Context::checkpoint`] would.
    ///
    /// # Errors
    /// [`NoteError::TooLarge`] or [`NoteError::Codec`] if the value cannot be a checkpoint.
    pub fn checkpoint<T: Serialize + ?Sized>(self, state: &T) -> Result<TestContext, NoteError> {
        self.0.held.notes.set_checkpoint(encoded_checkpoint(state, &Codecs::default())?);
        Ok(self)
    }

    /// The last checkpoint, as JSON.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<String> {
        let json = self.0.held.notes.unwritten_checkpoint()?;
        Some(String::from_utf8_lossy(&json).into_owned())
    }

    /// The last progress that the handler reported with [`Context::progress`].
    #[must_use]
    pub fn progress(&self) -> Option<JobProgress> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.0
            .held
            .notes
            .unwritten_progress()
            .map(|json| JobProgress::read(&json, &Codecs::default(), now.as_millis() as u64))
    }

    /// The context. All contexts of one test context share one job: each sees every change to it.
    #[must_use]
    pub fn context(&self) -> Context {
        Context(Arc::new(self.0.clone()))
    }

    /// Cancels the job: [`Context::cancelled`] completes, and `heartbeat` returns `Err(Cancelled)`.
    pub fn cancel(&self) {
        self.0.held.set(Flags::CANCELLED);
    }

    /// Takes the job from the worker: `heartbeat` returns `Err(Lost)`.
    pub fn lose(&self) {
        self.0.held.set(Flags::LOST);
    }

    /// Puts the job at risk of being taken: [`Context::lock_at_risk`] completes.
    pub fn put_at_risk(&self) {
        self.0.held.set(Flags::AT_RISK);
    }

    /// Starts a shutdown of the worker: [`Context::shutting_down`] completes. The grace lasts until [`TestContext::end_grace`].
    pub fn shut_down(&self) {
        self.0.held.set(Flags::SHUTTING_DOWN);
    }

    /// Ends the grace of the shutdown: [`Context::cancelled`] completes, and `heartbeat` returns `Err(Shutdown)`.
    pub fn end_grace(&self) {
        self.0.held.set(Flags::SHUTTING_DOWN);
        self.0.held.set(Flags::SHUTDOWN);
    }
}

impl fmt::Debug for TestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestContext").field("task", &self.0.task).field("id", &self.0.held.id).finish_non_exhaustive()
    }
}
