//! The handle to a job that was dispatched.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::cancel::Cancel;
use super::job::Job;
use super::shared::TaskShared;
use crate::backend::actions::{self, ActionReply, Named};
use crate::backend::jobs::{self, Inspected, StoredJob};
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::large_value::{self, READ_AGAIN, Unread};
use crate::backend::note::{self, Stored};
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::replicated::ask_copied;
use crate::backend::settle::Payload;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::values::{self, ValuePlace};
use crate::codec::Codecs;
use crate::error::Error;
use crate::error::value::read_value;
use crate::escape::cut;
use crate::events::event::Event;
use crate::events::result_poller::End;
use crate::job::failure::{Failure, StoredError};
use crate::job::id::JobId;
use crate::job::progress::JobProgress;
use crate::job::state::JobState;
use crate::limits::{LARGE, MESSAGE_LIMIT};
use crate::options::modes::{Durability, EventMode};
use crate::options::unique::Placed;
use crate::runtime::waits::NotedWait;

/// How long after the removal of a job the event of its end may come.
const EVENT_DELAY: Duration = Duration::from_secs(1);

/// After this time, a call that waits for a result logs the state of the job.
pub(crate) const LATE: Duration = Duration::from_secs(10);

/// A job that was dispatched, with the type of its result. Cloning is cheap.
///
/// ```no_run
/// # use std::time::Duration;
/// # use heartline::{Error, TaskRef};
/// # async fn run(exports: TaskRef<u64, String>) -> heartline::Result<()> {
/// let job = exports.dispatch(7).await?;
/// match job.result_within(Duration::from_secs(30)).await {
///     Ok(path) => println!("{path}"),
///     Err(Error::TimedOut { .. }) => drop(job.cancel("the caller gave up").await?),
///     Err(e) => return Err(e),
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping the handle does not affect the job. [`TaskRef::handle`](crate::TaskRef::handle) finds a job again by its id.
pub struct JobHandle<O> {
    task: Arc<TaskShared>,
    id: JobId,
    placed: Option<Placed>,
    output: PhantomData<fn() -> O>,
}

impl<O> JobHandle<O> {
    pub(crate) fn new(task: Arc<TaskShared>, id: JobId, existed: Option<bool>) -> JobHandle<O> {
        let placed = existed.map(|existed| if existed { Placed::Existed } else { Placed::New });
        JobHandle { task, id, placed, output: PhantomData }
    }

    pub(crate) fn placed_as(task: Arc<TaskShared>, id: JobId, placed: Placed) -> JobHandle<O> {
        JobHandle { task, id, placed: Some(placed), output: PhantomData }
    }

    /// The id of the job.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// The name of the task.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task.name
    }

    /// Whether the job existed before its dispatch, in any state, so that the dispatch changed nothing. `Some(false)` if it was
    /// replaced or postponed, see [`placed`](JobHandle::placed). `None` for a handle that was made from an id.
    ///
    /// After a lost reply the dispatch is repeated. It may then find the job of its own first call, unless it has a unique key.
    #[must_use]
    pub fn existed(&self) -> Option<bool> {
        self.placed.map(|placed| placed == Placed::Existed)
    }

    /// What the dispatch did; for a [unique](crate::Dispatch::unique) job also whether it was replaced or postponed. `None` for a handle
    /// that was made from an id.
    #[must_use]
    pub fn placed(&self) -> Option<Placed> {
        self.placed
    }

    /// The state of the job now.
    ///
    /// # Errors
    /// - [`Error::JobNotFound`] if it was never dispatched, or retention removed it.
    /// - [`Error::Connect`] if Redis cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn state(&self) -> Result<JobState, Error> {
        let look = |keys: Arc<TaskKeys>| async move {
            let keys = &keys;
            let look = |mut conn| async move { jobs::states(&mut conn, keys, std::slice::from_ref(&self.id)).await };
            let looked = self.task.store.ask(RESPONSE_TIMEOUT, look).await?;
            Ok(looked.jobs.into_iter().flatten().next().map(|(state, _)| state))
        };
        self.task.find(&self.id, look).await?.ok_or_else(|| self.not_found())
    }

    /// The handle, if the job has this header with this value. So the web process of a service shows to each customer only their own jobs:
    ///
    /// ```no_run
    /// # use heartline::{App, JobStatus, Result, TaskDef};
    /// # const EXPORT: TaskDef<u64, String> = TaskDef::new("export");
    /// async fn show(app: &App, customer: &str, id: &str) -> Result<JobStatus<String>> {
    ///     EXPORT.handle(app, id)?.require_header("customer", customer).await?.status().await
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Error::JobNotFound`] if it has no such header or another value, was never dispatched, or was removed by retention.
    /// - [`Error::Connect`] if Redis cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn require_header(self, name: &str, value: &str) -> Result<JobHandle<O>, Error> {
        let job = Job::new(self.id.clone(), &self.inspected().await?);
        match job.headers.get(name) {
            Some(own) if own == value => Ok(self),
            _ => Err(self.not_found()),
        }
    }

    /// The progress that the handler reported with [`Context::progress`](crate::Context::progress). `None` if it reported none, or
    /// the job no longer exists. [`App::events`](crate::App::events) has an event for each report.
    ///
    /// # Errors
    /// [`Error::Connect`] if Redis cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn progress(&self) -> Result<Option<JobProgress>, Error> {
        let look = |keys: Arc<TaskKeys>| async move {
            let keys = &keys;
            let look = |mut conn| async move { note::stored(&mut conn, keys, Key::Progress, &self.id).await };
            self.task.store.ask(RESPONSE_TIMEOUT, look).await
        };
        let stored = self.task.find(&self.id, look).await?;
        Ok(stored.map(|stored| self.read_progress(&stored)))
    }

    /// Waits until the job has ended and returns its value.
    ///
    /// It has no timeout, and keeps waiting while Redis is unreachable; see [`result_within`](JobHandle::result_within). Usually the event
    /// of the job's end ends the wait. The call also polls the state, after 1 s and then at growing pauses of up to 10 s, or 5 s if
    /// events are off. All waiting handles share one connection for events and one for polling, and poll with few calls.
    ///
    /// # Errors
    /// - [`Error::JobFailed`] if it failed, with the last failure.
    /// - [`Error::JobCancelled`] if it was cancelled, with the reason.
    /// - [`Error::JobNotFound`] if it was never dispatched, or retention removed it.
    /// - [`Error::ResultGone`] if it completed, but its value is not kept. A value of `null` is not stored. If `O` can be decoded
    ///   from `null`, the call returns that instead.
    /// - [`Error::Codec`] if the value cannot be decoded as `O`, [`Error::PayloadCodec`] if a codec is missing or fails.
    /// - [`Error::Connect`] if waiting does not help, for example after a wrong password, or if the server closes the
    ///   connection each time it sends the value.
    ///
    /// If a job is removed when it ends ([`Retention::remove_at_once`](crate::Retention::remove_at_once)), only its event says how
    /// it ended. The event has the first 160 bytes of the error, no counts, and no reason of a cancel. If `O` has only one value,
    /// such as `()`, the call returns it. A call after the event returns `JobNotFound`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result(&self) -> Result<O, Error>
    where
        O: DeserializeOwned,
    {
        let _noted = NotedWait::begin();
        // Subscribe before the first poll, so that no end between the two is missed.
        let listens = self.task.options.events == EventMode::On;
        let wait = |keys: &Arc<TaskKeys>| self.task.events.wait(&self.task.name, keys, &self.id, listens);
        let keys = self.task.tables.of(self.id.as_str());
        let mut waiter = wait(&keys);
        let mut end = self.log_if_late(waiter.end()).await?;
        if matches!(end, End::Gone { seen: false }) && self.task.is_elsewhere(&keys).await? {
            // The number of partitions may have changed, so find the table again.
            waiter = wait(&self.task.tables.of(self.id.as_str()));
            end = self.log_if_late(waiter.end()).await?;
        }
        let value = match end {
            End::Completed(None) => None,
            End::Completed(Some(Payload::Here(value))) => Some(value),
            End::Completed(Some(Payload::Apart(bytes))) => Some(self.large_result(bytes).await?),
            End::Otherwise(job) => return Err(self.failure(&job)),
            End::Gone { seen } => {
                // The job was seen and no longer exists: the event of its end may still come.
                let time = if seen && waiter.listens() { EVENT_DELAY } else { Duration::ZERO };
                match waiter.event(time).await {
                    // Such a type has only one value, stored or not.
                    Some(Event::Completed { .. }) if size_of::<O>() == 0 => None,
                    ended => return Err(self.gone(ended)),
                }
            }
        };
        decode_result(&self.task.name, self.id.clone(), value.as_deref(), &self.task.store.codecs)
    }

    /// Logs the state of the job if its end is unknown after 10 s: a waiting job may have no worker.
    async fn log_if_late(&self, end: impl Future<Output = Result<End, Error>>) -> Result<End, Error> {
        let late = async {
            tokio::time::sleep(LATE).await;
            let state = self.state().await.map_or("unknown", |state| state.as_str());
            let (task, job_id, prefix) = (&self.task.name, &self.id, self.task.store.prefix());
            match state {
                "waiting" => tracing::info!(%task, %job_id, state, prefix,
                    "still waiting for the result; a job starts only if a worker with this prefix has its task"),
                _ => tracing::info!(%task, %job_id, state, prefix, "still waiting for the result"),
            }
            std::future::pending().await
        };
        tokio::select! {
            end = end => end,
            never = late => never,
        }
    }

    /// As [`result`](JobHandle::result), but waits at most for `time`. The job continues afterwards.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the job has not ended by then; else as [`result`](JobHandle::result).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result_within(&self, time: Duration) -> Result<O, Error>
    where
        O: DeserializeOwned,
    {
        tokio::time::timeout(time, self.result()).await.unwrap_or_else(|_| {
            Err(Error::TimedOut { task: self.task.name.to_string(), id: self.id.clone(), after: time })
        })
    }

    /// Reads a value that is too large for a shared connection.
    async fn large_result(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        let place = ValuePlace { column: Key::Result, field: self.id.to_string(), bytes };
        loop {
            let keys = self.task.tables.of(self.id.as_str());
            let e = match large_value::read(&self.task.store, &keys, &place).await {
                // The result existed, and was removed meanwhile.
                Ok(value) => {
                    let gone = || Error::ResultGone { task: self.task.name.to_string(), id: self.id.clone() };
                    return value.and_then(values::without_graph).ok_or_else(gone);
                }
                Err(Unread::Failed(e)) if e.is_outage() => e,
                Err(Unread::Failed(e) | Unread::TooLarge(e)) => return Err(e),
            };
            tracing::debug!(task = %self.task.name, job_id = %self.id, bytes, error = %e.chain(),
                "a large result cannot be read; will retry");
            tokio::time::sleep(READ_AGAIN).await;
        }
    }

    /// Reads the result of a completed job, which has this size. `None` if it is not kept.
    pub(super) async fn stored_result(&self, bytes: usize) -> Result<Option<O>, Error>
    where
        O: DeserializeOwned,
    {
        let TaskShared { store, name, tables, .. } = &*self.task;
        let (keys, id) = (tables.of(self.id.as_str()), self.id.clone());
        let read = move |mut conn| {
            let (keys, id) = (Arc::clone(&keys), id.clone());
            async move { values::result(&mut conn, &keys, id.as_str()).await }
        };
        let column = match bytes {
            0 => None,
            _ if bytes > LARGE => store.read_apart(response_time(bytes), read).await?,
            _ => store.ask(response_time(bytes), read).await?,
        };
        match decode_result(name, self.id.clone(), column.as_deref(), &store.codecs) {
            Err(Error::ResultGone { .. }) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Cancels the job: at once if it waits, and through its handler if it runs. For a running job the answer is `Requested`. The job
    /// is cancelled when its handler has returned any value, or was dropped after its cancel grace. A repeated cancel keeps the first
    /// reason. While Redis is unreachable, the call is repeated for as long as a dispatch. After a lost reply it may report that the
    /// job is cancelled already. A reason is cut to 4 KiB.
    ///
    /// # Errors
    /// - [`Error::JobNotFound`] if it was never dispatched, or retention removed it.
    /// - [`Error::Connect`] if Redis cannot be reached for the `dispatch_timeout` of the App.
    /// - [`Error::Refused`] if Redis refuses writes.
    /// - [`Error::NotReplicated`] if fewer replicas have the cancel than its [`durability`](Cancel::durability)
    ///   requires. It is recorded anyway.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may be cancelled or not. It is safe to repeat.
    pub fn cancel(&self, reason: impl Into<String>) -> Cancel<'_, CancelOutcome> {
        let reason = reason.into();
        let cancel = move |durability| async move { self.cancel_now(cut(&reason, MESSAGE_LIMIT), durability).await };
        Cancel::new(self.task.options.durability, cancel)
    }

    async fn cancel_now(&self, reason: &str, durability: Durability) -> Result<CancelOutcome, Error> {
        let store = &*self.task.store;
        let deadline = CallDeadline::new(store.dispatch_timeout, Instant::now(), reason.len()).and(durability.time());
        let found = |told: &Vec<ActionReply>| told.iter().any(|told| *told != ActionReply::Unknown);
        let cancel = |keys: Arc<TaskKeys>| async move {
            let keys = &keys;
            let reply = repeated(deadline, || {
                let call = move |mut conn| async move {
                    let named = [Named::anywhere(self.id.clone())];
                    actions::cancel(&mut conn, keys, &named, reason, "").await
                };
                ask_copied(store, keys, durability, response_time(reason.len()), found, call)
            });
            let (told, copied) = reply.await.map_err(|e| e.at(store.place()))?;
            copied?;
            let told = told.into_iter().next();
            Ok(told.filter(|told| matches!(told, ActionReply::Done | ActionReply::Requested | ActionReply::InState(_))))
        };
        match self.task.find(&self.id, cancel).await? {
            Some(ActionReply::Done) => Ok(CancelOutcome::Cancelled),
            Some(ActionReply::Requested) => Ok(CancelOutcome::Requested),
            Some(ActionReply::InState(JobState::Finalizing)) => Ok(CancelOutcome::TooLate),
            Some(ActionReply::InState(state)) => Ok(CancelOutcome::AlreadyTerminal(state)),
            _ => Err(self.not_found()),
        }
    }

    /// The job as it is in Redis, without its values.
    pub(super) async fn inspected(&self) -> Result<Inspected, Error> {
        let look = |keys: Arc<TaskKeys>| async move {
            let keys = &keys;
            let look = |mut conn| async move { jobs::inspect(&mut conn, keys, self.id.as_str()).await };
            self.task.store.ask(RESPONSE_TIMEOUT, look).await
        };
        self.task.find(&self.id, look).await?.ok_or_else(|| self.not_found())
    }

    /// The progress of a job, from its stored form.
    pub(super) fn read_progress(&self, stored: &Stored) -> JobProgress {
        JobProgress::read(&stored.value, &self.task.store.codecs, stored.at_ms)
    }

    fn not_found(&self) -> Error {
        Error::JobNotFound { task: self.task.name.to_string(), id: self.id.clone() }
    }

    /// The error for a job that was removed. If the event of its end came, the error contains what it says.
    fn gone(&self, ended: Option<Event>) -> Error {
        let id = self.id.clone();
        match ended {
            Some(Event::Completed { task, .. }) => Error::ResultGone { task, id },
            Some(Event::Failed { code, message, .. }) => {
                Error::JobFailed(Failure::new(id, StoredError { code, message }, 0, 0))
            }
            Some(Event::Cancelled { .. }) => {
                Error::JobCancelled { id, reason: "the task does not keep the reason".to_owned() }
            }
            _ => self.not_found(),
        }
    }

    fn failure(&self, job: &StoredJob) -> Error {
        let (id, error) = (self.id.clone(), StoredError::from_json(&job.error));
        match job.state {
            JobState::Cancelled => Error::JobCancelled { id, reason: error.message },
            _ => Error::JobFailed(Failure::new(id, error, job.failed_attempts, job.stalled_count)),
        }
    }
}

/// The value of a completed job, from its column.
fn decode_result<O: DeserializeOwned>(
    task: &str,
    id: JobId,
    column: Option<&[u8]>,
    codecs: &Codecs,
) -> Result<O, Error> {
    let Some(column) = column else {
        return serde_json::from_str("null").map_err(|_| Error::ResultGone { task: task.to_owned(), id });
    };
    read_value(column, codecs, || format!("the result of job {id} of the task {task}"))
}

impl<O> Clone for JobHandle<O> {
    fn clone(&self) -> Self {
        JobHandle { task: self.task.clone(), id: self.id.clone(), placed: self.placed, output: PhantomData }
    }
}

impl<O> fmt::Debug for JobHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("task", &self.task.name)
            .field("id", &self.id)
            .field("placed", &self.placed)
            .finish()
    }
}

/// What a cancel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelOutcome {
    /// The job waited and is now cancelled. If its task has a hook, the job is finalizing until the hook has run. If no worker has
    /// declared the task yet, the job is finalizing until a worker knows whether there is a hook.
    Cancelled,
    /// A worker holds the job, and was asked to stop it.
    Requested,
    /// Its outcome is stored, and the hook of its task runs or will run. The job ends with that outcome.
    TooLate,
    /// The job had ended already.
    AlreadyTerminal(JobState),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> JobId {
        JobId::from_wire("a")
    }

    #[test]
    fn a_value_that_is_not_stored_is_null() {
        assert!(decode_result::<()>("t", id(), None, &Codecs::default()).is_ok());
        assert_eq!(decode_result::<Option<u8>>("t", id(), None, &Codecs::default()).unwrap(), None);
        assert!(matches!(decode_result::<u8>("t", id(), None, &Codecs::default()), Err(Error::ResultGone { .. })));
    }

    #[test]
    fn a_value_of_another_type_is_a_codec_error() {
        assert_eq!(decode_result::<u8>("t", id(), Some(b"7"), &Codecs::default()).unwrap(), 7);
        let e = decode_result::<u8>("t", id(), Some(b"\"x\""), &Codecs::default()).unwrap_err();
        assert_eq!(e.to_string(), "cannot encode or decode the result of job a of the task t");
    }
}
