//! A task from the producer's side.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::definition::folded_hook;
use super::dispatch::{Dispatch, checked_payload, new_job};
use super::handle::JobHandle;
use super::job::Job;
use super::shared::TaskShared;
use crate::backend::dispatch::NewJob;
use crate::backend::overview;
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::error::Error;
use crate::error::job_error::JobError;
use crate::events::event::Event;
use crate::events::subscription::Subscription;
use crate::job::id::JobId;
use crate::job::outcome::Outcome;
use crate::job::state::JobState;
use crate::runtime::context::Context;
use crate::stall::action::StalledEvent;

/// A task by its name, with the types of its input `I` and its result `O`: dispatches jobs and finds them again.
///
/// ```no_run
/// # use heartline::App;
/// # async fn run(app: App) -> heartline::Result<()> {
/// let exports = app.task_ref::<u64, String>("export")?;
/// let job = exports.dispatch(7).await?;
/// let all = exports.dispatch_many(8..1_000).await?;
/// println!("{} and {} more, {:?}", job.id(), all.len(), exports.counts().await?);
/// # Ok(())
/// # }
/// ```
///
/// Cloning is cheap. The caller chooses the types. If the handler cannot decode an input, the job is postponed for up
/// to [`TaskOptions::undecodable_for`](crate::TaskOptions::undecodable_for), and then fails with the code `codec`.
pub struct TaskRef<I, O> {
    pub(crate) shared: Arc<TaskShared>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> TaskRef<I, O> {
    pub(crate) fn new(shared: Arc<TaskShared>) -> TaskRef<I, O> {
        TaskRef { shared, types: PhantomData }
    }

    /// The name of the task.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A handle to a job that was dispatched before, by this process or another one. Does not ask Redis whether it exists.
    ///
    /// # Errors
    /// [`Error::Config`] if the id is not valid.
    pub fn handle(&self, id: impl AsRef<str>) -> Result<JobHandle<O>, Error> {
        let id = JobId::parse(id.as_ref())?;
        Ok(JobHandle::new(self.shared.clone(), id, None))
    }

    /// Subscribes to every event of this task, from any process: one for each transition. See
    /// [`App::events`](crate::App::events), which has those of all tasks.
    pub fn events(&self) -> Subscription<Event> {
        self.shared.events.all().only(Arc::clone(&self.shared.followed), Event::task)
    }

    /// Subscribes to `task:stalled` of this task. See [`App::on_stalled`](crate::App::on_stalled), which has those of all tasks.
    pub fn on_stalled(&self) -> Subscription<StalledEvent> {
        self.shared.events.stalled().only(Arc::clone(&self.shared.followed), |stalled| &stalled.task)
    }

    /// Sets a hook that runs after the outcome of each job of this task is known and before the job ends. It runs for every outcome. Use
    /// it to notify, to clean up, or to dispatch the next job.
    ///
    /// ```no_run
    /// # use heartline::{App, Context, JobError, Outcome, TaskOptions};
    /// # async fn run(app: App) -> heartline::Result<()> {
    /// let exports = app.task("export", TaskOptions::new(), |_: Context, id: u64| async move { Ok::<_, JobError>(id * 2) })?;
    /// let exports = exports.on_complete(|ctx: Context, outcome: Outcome<u64>| async move {
    ///     match outcome {
    ///         Outcome::Completed(rows) => println!("{} has {rows} rows", ctx.id()),
    ///         Outcome::Failed(failure) => println!("{failure}"),
    ///         Outcome::Cancelled { reason } => println!("{} was cancelled: {reason}", ctx.id()),
    ///     }
    ///     Ok::<_, JobError>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The outcome is stored first, so a crash does not lose the hook. The job is then [`Finalizing`](JobState::Finalizing): its
    /// handler never runs again, and any worker with a free slot runs the hook. The hook runs at least once, since a worker may die
    /// after the hook and before Redis records that it ran. [`JobHandle::result`] waits for the hook. A cancel returns
    /// [`TooLate`](crate::CancelOutcome::TooLate).
    ///
    /// [The guide](crate::guide::guarantees#hooks-what-runs-when-a-job-has-ended) lists the jobs for which it runs, the options that apply
    /// to it, what follows each failure, and what happens if only some workers have the hook.
    ///
    /// The value must own its data: `String`, not `&str`. Clone inside the closure what it needs:
    /// `move |ctx, outcome| { let mailer = mailer.clone(); async move { .. } }`.
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no handler in this App, has a hook already, or a worker was made since
    /// ([`App::worker`](crate::App::worker)).
    pub fn on_complete<E, F, Fut>(&self, hook: F) -> Result<TaskRef<I, O>, Error>
    where
        O: DeserializeOwned + Send + 'static,
        E: Into<JobError>,
        F: Fn(Context, Outcome<O>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        if self.shared.hook.set(Some(folded_hook(hook))).is_ok() {
            return Ok(self.clone());
        }
        let rule = match self.shared.hook.get() {
            Some(Some(_)) => "must have only one hook",
            _ => "must have its handler in this App, and must get its hook before a worker is made",
        };
        let fix = "call on_complete once, right after App::task";
        Err(Error::Config(ConfigErrors::from(ConfigError::new("task", &*self.shared.name, rule, fix))))
    }

    /// How many jobs are in each state, counted in one step, or in one step for each partition. The cost does not depend on their number.
    ///
    /// # Errors
    /// Those of every call, see [`Error`]. A server at `maxmemory` still answers.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn counts(&self) -> Result<TaskCounts, Error> {
        let store = &self.shared.store;
        Ok(TaskCounts::of(overview::count_all(store, &self.shared.tables.asked(store).await?).await?))
    }

    /// One job as it is now.
    ///
    /// # Errors
    /// - [`Error::JobNotFound`] if it was never dispatched, or retention removed it.
    /// - [`Error::Config`] if the id is not valid.
    /// - [`Error::Connect`] if Redis cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn job(&self, id: impl AsRef<str>) -> Result<Job, Error> {
        let handle = self.handle(id)?;
        Ok(Job::new(handle.id().clone(), &handle.inspected().await?))
    }
}

impl<I: Serialize, O> TaskRef<I, O> {
    /// A job with this input. It is dispatched when the value is awaited; before that, its settings can be changed.
    pub fn dispatch(&self, input: I) -> Dispatch<I, O> {
        Dispatch::new(Ok(self.shared.clone()), serde_json::to_vec(&input))
    }

    /// Dispatches a job for each input, in calls of up to 200. Returns their handles in the order of the inputs.
    ///
    /// All inputs are encoded and checked first. The call is not atomic. Jobs of other producers may come in between, and if it fails,
    /// some jobs may be written. To be able to repeat it, use [`dispatch_many_with_ids`](TaskRef::dispatch_many_with_ids).
    ///
    /// # Errors
    /// - [`Error::Codec`] or [`Error::TooLarge`] if an input cannot be written as JSON or is too large. Nothing is written.
    /// - [`Error::Partial`] if the call stopped later. Its source is the cause (`Connect`, `Refused`, `Unsupported`),
    ///   and it lists the jobs that are known to be written, possibly none. With `NotReplicated` as its source, all are
    ///   written, and some have fewer replicas than requested.
    ///
    /// # Cancel safety
    /// If the future is dropped, some jobs may be written and others not.
    pub async fn dispatch_many(&self, inputs: impl IntoIterator<Item = I>) -> Result<Vec<JobHandle<O>>, Error> {
        let inputs = inputs.into_iter().map(|input| (None, input));
        self.write(self.jobs(inputs)).await
    }

    /// Dispatches a job for each id and input. With your own ids the call is safe to repeat: a job that exists stays unchanged.
    ///
    /// # Errors
    /// As [`dispatch_many`](TaskRef::dispatch_many), and [`Error::Config`] if ids are not valid. Nothing is written then.
    ///
    /// # Cancel safety
    /// If the future is dropped, some jobs may be written and others not; it is safe to repeat.
    pub async fn dispatch_many_with_ids(
        &self,
        inputs: impl IntoIterator<Item = (impl Into<String>, I)>,
    ) -> Result<Vec<JobHandle<O>>, Error> {
        let inputs = inputs.into_iter().map(|(id, input)| (Some(id.into()), input));
        self.write(self.jobs(inputs)).await
    }

    fn jobs(&self, inputs: impl Iterator<Item = (Option<String>, I)>) -> Result<Vec<NewJob>, Error> {
        let (mut jobs, mut faults) = (Vec::with_capacity(inputs.size_hint().0), Faults::default());
        for (id, input) in inputs {
            let payload = checked_payload(&self.shared, serde_json::to_vec(&input))?;
            let id = id.and_then(|id| faults.gather(JobId::chosen(&id)));
            jobs.push(new_job(&self.shared, id, payload));
        }
        faults.finish()?;
        if !jobs.is_empty() {
            self.shared.warn_without_key(None);
        }
        Ok(jobs)
    }
}

impl<I, O> TaskRef<I, O> {
    async fn write(&self, jobs: Result<Vec<NewJob>, Error>) -> Result<Vec<JobHandle<O>>, Error> {
        let TaskShared { dispatcher, options, .. } = &*self.shared;
        let written = async { dispatcher.dispatch_many(jobs?, options.durability).await }.await;
        let written = written.inspect_err(|e| self.shared.warn_of_failure(e))?;
        let handle = |(id, existed)| JobHandle::new(self.shared.clone(), id, Some(existed));
        Ok(written.into_iter().map(handle).collect())
    }
}

impl<I, O> Clone for TaskRef<I, O> {
    fn clone(&self) -> Self {
        TaskRef::new(self.shared.clone())
    }
}

impl<I, O> fmt::Debug for TaskRef<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRef").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// How many jobs of a task are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskCounts {
    /// In one of the three lists, ready to run.
    pub waiting: u64,
    /// Scheduled for later, or waiting for their next attempt.
    pub delayed: u64,
    /// Held by a worker that claimed them ahead; not begun.
    pub claimed: u64,
    /// Held by a worker; begun.
    pub running: u64,
    /// Their outcome is stored, and the hook of the task runs or will run.
    pub finalizing: u64,
    /// Completed and kept.
    pub completed: u64,
    /// Failed and kept.
    pub failed: u64,
    /// Cancelled and kept.
    pub cancelled: u64,
}

impl TaskCounts {
    /// How many are in this state.
    #[must_use]
    pub const fn count(&self, state: JobState) -> u64 {
        match state {
            JobState::Waiting => self.waiting,
            JobState::Delayed => self.delayed,
            JobState::Claimed => self.claimed,
            JobState::Running => self.running,
            JobState::Finalizing => self.finalizing,
            JobState::Completed => self.completed,
            JobState::Failed => self.failed,
            JobState::Cancelled => self.cancelled,
        }
    }

    /// How many a worker holds: claimed, running and finalizing ones.
    #[must_use]
    pub const fn held_total(&self) -> u64 {
        self.claimed + self.running + self.finalizing
    }

    /// How many have not ended: waiting, delayed and held ones.
    #[must_use]
    pub const fn pending_total(&self) -> u64 {
        self.waiting + self.delayed + self.held_total()
    }

    /// From counts in the order of the store.
    pub(crate) fn of(counts: [u64; 8]) -> TaskCounts {
        let [waiting, delayed, claimed, running, finalizing, completed, failed, cancelled] = counts;
        TaskCounts { waiting, delayed, claimed, running, finalizing, completed, failed, cancelled }
    }
}
