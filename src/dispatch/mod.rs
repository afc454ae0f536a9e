//! Dispatch: the builder of one job, and the calls that carry jobs to Redis, gathered while one is under way.

mod coalesce;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{ConfigErrors, Error};
use crate::handle::JobHandle;
use crate::job::JobId;
use crate::options::{OnRisk, Overrides, Priority, RetryPolicy, to_ms, validate};
use crate::store::jobs::NewJob;
use crate::task::TaskShared;

pub(crate) use coalesce::{Dispatcher, repeated};

/// A job about to be dispatched: set what differs from the task's options, then `.await` it.
///
/// Nothing happens before it is awaited. It is at once in Redis when the await returns, and a handle to it is the value.
///
/// A dispatch is repeated for 10 s while Redis cannot be reached. A job whose id exists in any state, a terminal one
/// included, is left as it is, and its handle says [`existed`](JobHandle::existed); after a lost reply that may be
/// the job of this very call.
///
/// # Errors
/// Awaiting it gives, in this order: [`Error::Codec`] when the input is no JSON; [`Error::TooLarge`] when it is over the
/// task's payload limit; [`Error::Config`] with every wrong setting; then [`Error::Connect`], [`Error::Refused`]
/// and [`Error::Unsupported`]. The job was not written, except that after `Connect` it may have been.
///
/// # Cancel safety
/// A future that is dropped may have dispatched the job or not; with an id of your own it is safe to repeat.
#[must_use = "a job is dispatched when this is awaited"]
pub struct Dispatch<I, O> {
    task: Arc<TaskShared>,
    payload: Result<Vec<u8>, serde_json::Error>,
    id: Option<String>,
    delay: Option<Duration>,
    priority: Option<Priority>,
    attempts: Option<u32>,
    overrides: Overrides,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Dispatch<I, O> {
    /// A dispatch with nothing set.
    pub(crate) fn new(task: Arc<TaskShared>, payload: Result<Vec<u8>, serde_json::Error>) -> Dispatch<I, O> {
        Dispatch {
            task,
            payload,
            id: None,
            delay: None,
            priority: None,
            attempts: None,
            overrides: Overrides::default(),
            types: PhantomData,
        }
    }

    /// When the job may run at the soonest, from now, by the clock of the Redis server. At most 10 years; 0 is none.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Which of the task's waiting jobs it goes before. Defaults to the task's priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// An id of your own, unique within the task: 1 to 128 bytes of printable ASCII without space and braces.
    ///
    /// The job is then dispatched once, however often this is repeated, for as long as retention keeps the id.
    /// Defaults to a new id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// How many runs the job gets, at least 1, with the task's delays in between. Goes before the count of
    /// [`retry`](Dispatch::retry).
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How many runs the job gets and how long it waits in between, in place of the task's policy as a whole.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.overrides.retry = Some(retry);
        self
    }

    /// How often the job may stall before it fails. 0 lets it fail at its first stall. Defaults to the task's.
    pub fn max_count(mut self, max_count: u32) -> Self {
        self.overrides.max_count = Some(max_count);
        self
    }

    /// How long one run may take. More than 0, at most 10 years. Defaults to the task's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.overrides.timeout = Some(timeout);
        self
    }

    /// What the worker does when it may lose the job. Defaults to the task's.
    pub fn on_risk(mut self, on_risk: OnRisk) -> Self {
        self.overrides.on_risk = Some(on_risk);
        self
    }

    /// How long the cancelled handler may wind down. At most 1 h. Defaults to the task's.
    pub fn cancel_grace(mut self, cancel_grace: Duration) -> Self {
        self.overrides.cancel_grace = Some(cancel_grace);
        self
    }

    /// Checks everything that can be checked here.
    fn into_job(self) -> Result<(Arc<TaskShared>, NewJob), Error> {
        let payload = checked_payload(&self.task, self.payload)?;
        let mut overrides = self.overrides;
        if let Some(attempts) = self.attempts {
            let policy = overrides.retry.unwrap_or_else(|| self.task.options.retry.clone());
            overrides.retry = Some(policy.attempts(attempts));
        }
        let checks = [
            self.id.as_deref().map_or(Ok(()), validate::job_id),
            self.delay.map_or(Ok(()), validate::delay),
            overrides.validate(),
        ];
        let faults = checks.into_iter().filter_map(Result::err).flatten();
        ConfigErrors::check(faults.collect())?;
        let job = NewJob {
            delay: self.delay.filter(|delay| !delay.is_zero()),
            priority: self.priority.or(own_priority(&self.task)),
            overrides,
            ..new_job(&self.task, self.id, payload)
        };
        Ok((self.task, job))
    }
}

impl<I, O: 'static> IntoFuture for Dispatch<I, O> {
    type Output = Result<JobHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let checked = self.into_job();
        Box::pin(async move {
            let (task, job) = checked?;
            let id = job.id.clone();
            let existed = task.dispatcher.dispatch(job).await?;
            Ok(JobHandle::new(task, id, existed))
        })
    }
}

impl<I, O> fmt::Debug for Dispatch<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the payload, which may hold anything.
        f.debug_struct("Dispatch")
            .field("task", &self.task.name)
            .field("id", &self.id)
            .field("delay", &self.delay)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// The payload, unless it is no JSON or too large.
pub(crate) fn checked_payload(
    task: &TaskShared,
    payload: Result<Vec<u8>, serde_json::Error>,
) -> Result<Vec<u8>, Error> {
    let payload =
        payload.map_err(|source| Error::Codec { what: format!("the input of a job of {}", task.name), source })?;
    let (size, limit) = (payload.len(), task.options.payload_limit);
    if size > limit {
        return Err(Error::TooLarge { size, limit });
    }
    Ok(payload)
}

/// A job with nothing set; the caller's own id was checked.
pub(crate) fn new_job(task: &TaskShared, id: Option<String>, payload: Vec<u8>) -> NewJob {
    // An id of our own making tells the time itself.
    let dispatched_at_ms =
        id.is_some().then(|| to_ms(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()));
    NewJob {
        id: id.map_or_else(JobId::generate, JobId::from_wire),
        payload,
        delay: None,
        priority: own_priority(task),
        overrides: Overrides::default(),
        dispatched_at_ms,
    }
}

/// The priority that this app gave the task. The normal one is left to what the task's workers wrote.
fn own_priority(task: &TaskShared) -> Option<Priority> {
    Some(task.options.priority).filter(|priority| *priority != Priority::Normal)
}
