//! What a handler can read and report while it runs.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::held_jobs::{Flags, HeldJob};
use super::note_store::NoteStore;
use super::notes::{MESSAGE_CUT, encoded_checkpoint, encoded_progress};
use super::state::Data;
use crate::backend::keys::Key;
use crate::codec::Codecs;
use crate::error::Interrupted;
use crate::error::NoteError;
use crate::error::job_error::{JobError, MissingState};
use crate::escape::{Escaped, cut};
use crate::job::failure::StoredError;
use crate::job::id::JobId;
use crate::job::tick::Tick;
use crate::options::overrides::Headers;
use crate::stall::recovery::Recovery;
use crate::worker_id::WorkerId;

/// The handler's side of one run of a job. Cheap to clone; clones may move to other tasks and threads.
///
/// ```
/// # use heartline::{Context, JobError};
/// async fn export(ctx: Context, pages: u32) -> Result<u32, JobError> {
///     for page in 0..pages {
///         // Says when to stop: the job was lost or cancelled, or the worker shuts down.
///         ctx.heartbeat()?;
///         println!("{} attempt {}: page {page}", ctx.id(), ctx.attempt());
///     }
///     Ok(pages)
/// }
/// ```
#[derive(Clone)]
pub struct Context(pub(crate) Arc<Run>);

/// The fixed data of one run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) held: Arc<HeldJob>,
    pub(crate) task: Arc<str>,
    pub(crate) worker: WorkerId,
    pub(crate) failed_attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) snoozed_count: u32,
    pub(crate) recovery: Option<Recovery>,
    /// Whether this runs the hook instead of the handler.
    pub(crate) is_hook: bool,
    pub(crate) dispatched_at: SystemTime,
    pub(crate) headers: Headers,
    /// The headers of the workflow instance whose node the job is.
    pub(crate) of_instance: Option<Arc<Headers>>,
    pub(crate) tick: Option<Tick>,
    pub(crate) data: Arc<Data>,
    /// `None` in a test of a handler.
    pub(crate) note_store: Option<Arc<NoteStore>>,
    /// In a test of a node's handler: the names of the nodes that it waits for, and their outcomes.
    pub(crate) given: Vec<GivenNode>,
}

/// The name of a node, and its value as JSON or how it failed.
pub(crate) type GivenNode = (String, Result<Vec<u8>, StoredError>);

impl Context {
    /// The id of the job.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.0.held.id
    }

    /// The name of the task.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.0.task
    }

    /// The number of this run, from 1. A run that stalled does not count: see [`Context::stalled_count`]. In a hook
    /// this and the other counts are those of the hook.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.failed_attempts.saturating_add(1)
    }

    /// How many runs may fail before the job does.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts
    }

    /// How often the job was found stalled before this run.
    #[must_use]
    pub fn stalled_count(&self) -> u32 {
        self.0.stalled_count
    }

    /// How the job was last recovered: why, from which worker, and when. `None` if it never was. Later runs of the job see it too.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.0.recovery.as_ref()
    }

    /// How often the job was snoozed before this run, by [`JobError::snooze`](crate::JobError::snooze).
    #[must_use]
    pub fn snoozed_count(&self) -> u32 {
        self.0.snoozed_count
    }

    /// When the job was dispatched, by the producer's clock.
    #[must_use]
    pub fn dispatched_at(&self) -> SystemTime {
        self.0.dispatched_at
    }

    /// A header that was set at the dispatch or, in a node of a workflow, at the start of its instance
    /// ([`Start::header`](crate::Start::header)). A hook does not see those of an instance.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let of_instance = || self.0.of_instance.as_ref()?.get(name);
        self.0.headers.get(name).or_else(of_instance).map(String::as_str)
    }

    /// As [`header`](Context::header), for a job that cannot run without it.
    ///
    /// ```
    /// # use heartline::{Context, JobError};
    /// async fn invoice(ctx: Context, order: u64) -> Result<String, JobError> {
    ///     Ok(format!("{order} of {}", ctx.require_header("tenant")?))
    /// }
    /// ```
    ///
    /// # Errors
    /// An error with the code `missing_header` if there is none. It is fatal: if a handler returns it, the job fails at once.
    pub fn require_header(&self, name: &str) -> Result<&str, JobError> {
        let missing = || JobError::new(format!("the job has no header {name:?}")).with_code("missing_header").fatal();
        self.header(name).ok_or_else(missing)
    }

    /// The tick of the schedule that dispatched the job, and the tick before it. `None` for any other job.
    #[must_use]
    pub fn tick(&self) -> Option<&Tick> {
        self.0.tick.as_ref()
    }

    /// The value of this type that was passed to [`AppBuilder::state`](crate::AppBuilder::state).
    ///
    /// # Errors
    /// [`MissingState`] if there is none. If a handler returns it, the job fails at once with the code `missing_state`.
    /// With [`TaskHandler::needs`](crate::TaskHandler::needs) the worker checks this when it starts.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T, MissingState> {
        self.0.data.get()
    }

    /// The worker that runs the job.
    #[must_use]
    pub fn worker_id(&self) -> &WorkerId {
        &self.0.worker
    }

    /// A number that grows with each claim of the task, even across a failover or a restart of Redis.
    ///
    /// A job can run twice: after a stall, the first run may still continue somewhere. Store the fence next to your own
    /// side effects, and refuse a write with a lower fence than the stored one.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.0.held.fence
    }

    /// Shows that the handler is alive, and returns an error if it should stop. Call it at every step of a long job.
    /// With `Heartbeat::Manual`, call it several times an interval.
    ///
    /// It reads and writes only local state: it is free in a tight loop, and works the same in async code, `spawn_blocking` and rayon.
    /// While Redis is unreachable it returns `Ok`: whether the job is lost is decided when Redis is back.
    ///
    /// # Errors
    /// - `Lost` if the lock is gone: the job stalled, and no outcome of this run is recorded.
    /// - `Cancelled` if the job was cancelled.
    /// - `AtRisk` if the job may soon be lost and `OnLockRisk::Cancel` is set. Return, and the job will run again.
    /// - `Shutdown` if the worker's shutdown grace is over. Return an error, and the job is requeued; `Ok` completes it.
    /// - `Frozen` if this process was frozen (SIGSTOP, a paused VM) for so long that another worker may have taken the
    ///   job. The error stays until a heartbeat is answered.
    /// - `Ended` if this run returned, or its time-out dropped it. Only code that outlived the run sees this.
    ///
    /// A time-out gives no notice: it drops the handler's future at once.
    pub fn heartbeat(&self) -> Result<(), Interrupted> {
        self.0.held.heartbeat()
    }

    /// Stores where the next run of the job can continue, and shows that the handler is alive, as [`Context::heartbeat`] does. The next
    /// run, after a crash, a failure or a shutdown, reads it with [`Context::last_checkpoint`].
    ///
    /// At most 64 KiB. It is written once per third of the stall interval, and the latest wins, so it is free to call at every
    /// step. If the run fails or is requeued, a newer checkpoint is written before the outcome, unless Redis is full and accepts only
    /// outcomes. A crash loses a checkpoint that was not written yet. A job that completes keeps no checkpoint.
    ///
    /// # Errors
    /// - [`NoteError::Interrupted`] if the handler should stop, as from `heartbeat`. The checkpoint counts anyway, unless the job is lost
    ///   or the run has ended.
    /// - [`NoteError::TooLarge`] or [`NoteError::Codec`] if the value cannot be stored.
    pub fn checkpoint<T: Serialize + ?Sized>(&self, state: &T) -> Result<(), NoteError> {
        let stored = encoded_checkpoint(state, &self.codecs())?;
        self.note(|held| held.notes.set_checkpoint(stored))
    }

    /// As [`Context::checkpoint`], and waits until Redis has it, for at most 5 s. So after a crash only the work since
    /// this call runs twice. [`Context::fence`] guards what must not run twice.
    ///
    /// # Errors
    /// As [`Context::checkpoint`], and [`NoteError::Redis`] if Redis refused it or did not answer. It is then written later, as with
    /// `checkpoint`.
    ///
    /// # Cancel safety
    /// Cancel safe: the checkpoint is kept, and is written soon.
    pub async fn checkpoint_now<T: Serialize + ?Sized>(&self, state: &T) -> Result<(), NoteError> {
        let noted = self.checkpoint(state);
        if !matches!(noted, Ok(()) | Err(NoteError::Interrupted(_))) {
            return noted;
        }
        if !self.0.held.notes.has_checkpoint() {
            // The keeper wrote the checkpoint first, and may have learned that the job is lost.
            return noted.and_then(|()| Ok(self.heartbeat()?));
        }
        if let Some(store) = &self.0.note_store
            && !store.write(&self.0.held).await?
        {
            self.0.held.set(Flags::LOST);
            return Err(Interrupted::Lost.into());
        }
        noted
    }

    /// The latest [`checkpoint`](Context::checkpoint) of this run or an earlier one; `None` if there is none.
    ///
    /// A checkpoint that cannot be decoded as `T`, for example after a deploy, counts as `None`, with a warning in the log. A
    /// job must be able to start without a checkpoint anyway. To migrate old ones, read them as a `serde_json::Value`.
    ///
    /// # Errors
    /// [`NoteError::Redis`] if Redis does not answer. [`NoteError::PayloadCodec`] if the codec of the App cannot decode it; with `?`, the
    /// job is postponed as one with an unreadable payload.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, NoteError> {
        let own = self.0.held.notes.unwritten_checkpoint();
        let value = match (own, &self.0.note_store) {
            (Some(value), _) => Some(value),
            (None, Some(store)) => store.stored(Key::Checkpoint, self.id()).await?.map(|stored| stored.value.into()),
            (None, None) => None,
        };
        let Some(value) = value else { return Ok(None) };
        let codecs = self.codecs();
        let json = codecs.decode(&value).map_err(|source| NoteError::PayloadCodec { what: "checkpoint", source })?;
        Ok(serde_json::from_slice(&json)
            .inspect_err(|e| {
                tracing::warn!(task = %self.task(), job_id = %self.id(), error = %Escaped(&e.to_string()),
                    "the checkpoint cannot be decoded; the run starts without it");
            })
            .ok())
    }

    /// Reports the progress of the job to people, and shows that the handler is alive, as [`Context::heartbeat`] does. The value is a
    /// percentage or anything else. Value and message have at most 1 KiB of JSON. The message may be empty; it is cut to 512 bytes.
    ///
    /// It is stored with the job, for [`JobHandle::progress`](crate::JobHandle::progress) and [`JobReport`](crate::JobReport), and emitted
    /// as [`Event::Progress`](crate::Event::Progress). Both happen at most once a second for a job, and the latest wins. A newer value is
    /// dropped when the job completes.
    ///
    /// # Errors
    /// As [`Context::checkpoint`].
    pub fn progress<T: Serialize + ?Sized>(&self, value: &T, message: impl AsRef<str>) -> Result<(), NoteError> {
        let stored = encoded_progress(value, cut(message.as_ref(), MESSAGE_CUT), &self.codecs())?;
        self.note(|held| held.notes.set_progress(stored))
    }

    /// The codecs of the App. A test of a handler has none.
    pub(crate) fn codecs(&self) -> Arc<Codecs> {
        self.0.note_store.as_ref().map(|notes| Arc::clone(&notes.store.codecs)).unwrap_or_default()
    }

    fn note(&self, note: impl FnOnce(&HeldJob)) -> Result<(), NoteError> {
        let heartbeat = self.heartbeat();
        if !matches!(heartbeat, Err(Interrupted::Lost | Interrupted::Ended)) {
            note(&self.0.held);
            self.0.held.noted();
        }
        Ok(heartbeat?)
    }

    /// Completes when the handler should stop: the job was lost or cancelled, the shutdown grace is over, or the job
    /// may soon be lost and `OnLockRisk::Cancel` is set. After the cancel grace the handler's future is dropped. In code
    /// that outlives the run it completes at the latest when the run ends.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn cancelled(&self) {
        self.0.held.wait_for(Flags::STOP).await;
    }

    /// Whether [`Context::cancelled`] would complete at once.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.held.flags().intersects(Flags::STOP)
    }

    /// Completes when a tenth of the interval is left until the job can be taken, with or without a connection to Redis.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lock_at_risk(&self) {
        self.0.held.wait_for(Flags::AT_RISK).await;
    }

    /// Whether the job is at risk now: less than a tenth of the interval is left until it can be taken. An answered heartbeat ends that.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.0.held.flags().intersects(Flags::AT_RISK)
    }

    /// Completes when the worker begins to shut down. The shutdown grace begins then.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn shutting_down(&self) {
        self.0.held.wait_for(Flags::SHUTTING_DOWN).await;
    }

    /// Whether the worker shuts down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.0.held.flags().intersects(Flags::SHUTTING_DOWN)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("task", &self.0.task)
            .field("id", self.id())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
