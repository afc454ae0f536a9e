//! The dispatch of one job.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use super::handle::JobHandle;
use super::shared::TaskShared;
use crate::backend::dispatch::NewJob;
use crate::config_error::Faults;
use crate::error::Error;
use crate::error::value::encoded_value;
use crate::job::id::JobId;
use crate::options::key::check_key;
use crate::options::modes::{Durability, Priority};
use crate::options::overrides::{Overrides, header_bytes};
use crate::options::retry::RetryPolicy;
use crate::options::stall::OnLockRisk;
use crate::options::unique::Unique;
use crate::options::validate::HEADERS_LIMIT;
use crate::unix_time::ms_of;

/// A job that is dispatched when this is awaited. Before that, set what differs from the options of the task.
///
/// When the await returns a handle, the job is in Redis. It is a future like any other, for `tokio::spawn` or `join_all`.
///
/// ```no_run
/// # use std::time::Duration;
/// # use heartline::{Priority, TaskRef};
/// # async fn run(mails: TaskRef<String, ()>) -> heartline::Result<()> {
/// let job = mails.dispatch("ada".to_owned()).id("welcome-ada").delay(Duration::from_secs(60)).await?;
/// let urgent = tokio::spawn(mails.dispatch("bob".to_owned()).priority(Priority::High));
/// # Ok(())
/// # }
/// ```
///
/// While Redis is unreachable, a dispatch is repeated for 10 s ([`AppBuilder::dispatch_timeout`](crate::AppBuilder::dispatch_timeout)). If
/// a job with this id exists in any state, even a terminal one, it stays unchanged, and its handle reports that it
/// [`existed`](JobHandle::existed). After a lost reply that may be the job of this very call.
///
/// # Errors
/// They are checked in this order. After an error the job is not written, with two exceptions: after `Connect` it may have been
/// written, and after `NotReplicated` it is.
///
/// - [`Error::Codec`] if the input cannot be written as JSON, [`Error::PayloadCodec`] if the codec of the App fails.
/// - [`Error::TooLarge`] if it is over the payload limit of the task.
/// - [`Error::Config`] if settings are wrong; it lists all of them.
/// - [`Error::NotReplicated`] if fewer replicas have it than [`Durability::Replicated`] requires.
/// - [`Error::Refused`] if Redis refuses writes, [`Error::Closed`] if the runtime has ended, and those of every call, see [`Error`].
///
/// # Cancel safety
/// If the future is dropped, the job may have been dispatched or not; with your own id it is safe to repeat.
#[must_use = "a job is dispatched when this is awaited"]
pub struct Dispatch<I, O> {
    task: Result<Arc<TaskShared>, NoTask>,
    /// `None` once the dispatch is under way.
    payload: Option<Result<Vec<u8>, serde_json::Error>>,
    id: Option<String>,
    priority: Option<Priority>,
    expires_after: Option<Duration>,
    overrides: Overrides,
    durability: Option<Durability>,
    unique: Option<Unique>,
    key: Option<String>,
    under_way: Option<Written<O>>,
    types: PhantomData<fn(I) -> O>,
}

/// A task that cannot be used: its name or its options are not valid.
#[derive(Debug)]
pub(crate) struct NoTask {
    pub(crate) name: &'static str,
    /// Taken by the first poll.
    pub(crate) error: Option<Error>,
}

type Written<O> = Pin<Box<dyn Future<Output = Result<JobHandle<O>, Error>> + Send>>;

impl<I, O> Dispatch<I, O> {
    pub(crate) fn new(
        task: Result<Arc<TaskShared>, NoTask>,
        payload: Result<Vec<u8>, serde_json::Error>,
    ) -> Dispatch<I, O> {
        Dispatch {
            task,
            payload: Some(payload),
            id: None,
            priority: None,
            expires_after: None,
            overrides: Overrides::default(),
            durability: None,
            unique: None,
            key: None,
            under_way: None,
            types: PhantomData,
        }
    }

    /// Sets all options, the priority and the key.
    pub(crate) fn with_overrides(
        mut self,
        overrides: Overrides,
        priority: Option<Priority>,
        key: Option<String>,
    ) -> Dispatch<I, O> {
        (self.overrides, self.priority, self.key) = (overrides, priority, key);
        self
    }

    /// The name of the task.
    #[must_use]
    pub fn task(&self) -> &str {
        match &self.task {
            Ok(task) => &task.name,
            Err(none) => none.name,
        }
    }

    /// The job runs after this delay at the earliest, by the clock of the Redis server. At most 10 years. 0 means no delay.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.overrides.delay = Some(delay).filter(|delay| !delay.is_zero());
        self
    }

    /// The priority among the waiting jobs of the task. Defaults to that of the task.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Your own id, unique within the task: 1 to 128 bytes of printable ASCII without space and braces; the first byte is not `~`.
    ///
    /// The job is then dispatched once, however often the call is repeated, for as long as retention keeps the id. A
    /// dispatch with an id that exists changes nothing, even if its input differs:
    /// [`JobHandle::existed`](crate::JobHandle::existed) reports it. Defaults to a new id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Fails the job with the code `expired` if no worker begins it within this time of its dispatch, by the clock of Redis. A
    /// later claim ends it; if there are no claims, workers end it within about 5 s. A job that has begun no longer expires, even
    /// if it is retried or recovered. The time also passes while the task is paused.
    ///
    /// More than the delay, at most 10 years. Defaults to never.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Writes the job only if no job that counts has this key ([`Unique`]). [`JobHandle::placed`] says what the dispatch did, and the
    /// handle leads to the job that has the key.
    ///
    /// An [`id`](Dispatch::id) next to the key is that of a new job: if the key is taken, it is ignored. For a task with several
    /// partitions, the two together are refused. Such a job has a call of its own.
    pub fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// The key of the job, instead of the one that [`TaskOptions::key`](crate::TaskOptions::key) finds in its input. The job waits in the
    /// lane of this key, and counts for the limits of [`TaskOptions::per_key`](crate::TaskOptions::per_key).
    ///
    /// 1 to 128 bytes without control characters. A key together with an [`id`](Dispatch::id) is refused for a task with several
    /// partitions.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// When the job counts as dispatched. Defaults to the task's ([`TaskOptions::durability`](crate::TaskOptions::durability)).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// How many runs the job gets, 1 to 1,000,000, with the task's delays between them. Takes precedence over the count
    /// of [`retry`](Dispatch::retry).
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.overrides.attempts = Some(attempts);
        self
    }

    /// Adds a text that is stored next to the input of the job, such as a trace id. Name and value may be any text. The handler reads it with
    /// [`Context::header`](crate::Context::header). All headers of a job have at most 4 KiB, counting names and values. A header
    /// replaces an earlier one of the same name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.overrides.headers.insert(name.into(), value.into());
        self
    }

    /// How many more bytes of header names and values fit, for callers that can leave headers out.
    #[must_use]
    pub fn headers_left(&self) -> usize {
        HEADERS_LIMIT.saturating_sub(header_bytes(&self.overrides.headers))
    }

    /// How many runs the job gets and how long it waits between them. Replaces the whole policy of the task.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.overrides.retried_codes = retry.codes();
        self.overrides.retry = Some(retry);
        self
    }

    /// How many starts each run of the job counts as, against the rates of its task and of its key. 1 to 1,000,000; more than a rate counts
    /// as the whole rate. Defaults to 1.
    pub fn cost(mut self, starts: u32) -> Self {
        self.overrides.cost = Some(starts).filter(|starts| *starts != 1);
        self
    }

    /// How often the job may stall before it fails. With 0 it fails at its first stall. Defaults to the task's.
    pub fn max_stalls(mut self, max_count: u32) -> Self {
        self.overrides.max_count = Some(max_count);
        self
    }

    /// How long one run may take. More than 0, at most 10 years. Defaults to the task's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.overrides.timeout = Some(timeout);
        self
    }

    /// What the worker does when it may lose the job. Defaults to the task's.
    pub fn on_lock_risk(mut self, on_risk: OnLockRisk) -> Self {
        self.overrides.on_risk = Some(on_risk);
        self
    }

    /// How long the cancelled handler may wind down. At most 1 h. Defaults to the task's.
    pub fn cancel_grace(mut self, cancel_grace: Duration) -> Self {
        self.overrides.cancel_grace = Some(cancel_grace);
        self
    }

    /// Checks everything that can be checked without Redis.
    fn take_job(&mut self, task: &TaskShared, payload: Result<Vec<u8>, serde_json::Error>) -> Result<NewJob, Error> {
        let (mut overrides, unique) = (std::mem::take(&mut self.overrides), self.unique.take());
        let is_encoded = task.store.codecs.is_any();
        let unique_key =
            unique.as_ref().zip(payload.as_ref().ok()).map(|(unique, json)| unique.key_of(json, is_encoded));
        let mut faults = Faults::default();
        if let (Some(unique), Ok(json)) = (&unique, &payload) {
            unique.check_text(json, &mut faults);
        }
        let payload = checked_payload(task, payload)?;
        if let Some(unique) = &unique {
            unique.check(overrides.delay, &mut faults);
            overrides.delay = unique.delay().or(overrides.delay);
        }
        let id = self.id.take().and_then(|id| faults.gather(JobId::chosen(&id)));
        faults.gather(overrides.validate());
        let key = self.key.take();
        faults.gather(key.as_deref().map_or(Ok(()), check_key));
        if let Some(durability) = self.durability {
            faults.durability(durability);
        }
        if let Some(time) = self.expires_after {
            let longest = unique.as_ref().and_then(Unique::longest_delay).or(overrides.delay);
            faults.expires_after(time, longest.unwrap_or_default());
        }
        faults.finish()?;
        task.warn_without_key(key.as_deref());
        let has_own_id = id.is_some();
        let job = new_job(task, id, payload);
        let call = || if has_own_id { JobId::generate() } else { job.id.clone() };
        Ok(NewJob {
            unique: unique.zip(unique_key).map(|(unique, key)| unique.to_send(key, call())),
            priority: self.priority.or(own_priority(task)),
            overrides,
            expires_after: self.expires_after,
            key,
            ..job
        })
    }
}

impl<I, O: 'static> Future for Dispatch<I, O> {
    type Output = Result<JobHandle<O>, Error>;

    /// # Panics
    /// If it is polled again after it has returned its value.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(payload) = self.payload.take() {
            let task = match &mut self.task {
                Ok(task) => Arc::clone(task),
                Err(none) => return Poll::Ready(Err(none.error.take().unwrap_or(Error::Closed))),
            };
            let job = self.take_job(&task, payload);
            let durability = self.durability.unwrap_or(task.options.durability);
            self.under_way = Some(Box::pin(async move {
                let written = async { task.dispatcher.dispatch(job?, durability).await }.await;
                let (id, placed) = written.inspect_err(|e| task.warn_of_failure(e))?;
                Ok(JobHandle::placed_as(task, id, placed))
            }));
        }
        match &mut self.under_way {
            Some(written) => written.as_mut().poll(cx),
            // Cannot happen: it is set by the first poll.
            None => Poll::Pending,
        }
    }
}

impl<I, O> fmt::Debug for Dispatch<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The payload is left out, since it may contain anything.
        f.debug_struct("Dispatch")
            .field("task", &self.task())
            .field("id", &self.id)
            .field("delay", &self.overrides.delay)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// The encoded payload, unless it cannot be written as JSON or encoded, or is too large.
pub(crate) fn checked_payload(
    task: &TaskShared,
    payload: Result<Vec<u8>, serde_json::Error>,
) -> Result<Vec<u8>, Error> {
    let what = || format!("the input of a job of {}", task.name);
    let json = payload.map_err(|source| Error::Codec { what: what(), source })?;
    let payload = encoded_value(json, &task.store.codecs, what)?;
    let (size, limit) = (payload.len(), task.options.payload_limit);
    if size > limit {
        return Err(Error::TooLarge { what: None, size, limit });
    }
    Ok(payload)
}

/// A job with nothing set except the caller's own id, if it has one.
pub(crate) fn new_job(task: &TaskShared, id: Option<JobId>, payload: Vec<u8>) -> NewJob {
    // A generated id contains the time.
    let dispatched_at_ms = id.is_some().then(|| ms_of(SystemTime::now()));
    NewJob {
        id: id.unwrap_or_else(JobId::generate),
        payload,
        priority: own_priority(task),
        overrides: Overrides::default(),
        expires_after: None,
        dispatched_at_ms,
        unique: None,
        key: None,
    }
}

/// The priority of the task in this App. `None` for the normal one: then the priority counts that the task's workers declared.
fn own_priority(task: &TaskShared) -> Option<Priority> {
    Some(task.options.priority).filter(|priority| *priority != Priority::Normal)
}
