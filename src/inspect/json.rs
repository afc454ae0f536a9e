//! Jobs as JSON: dispatch and wait without the types of the task.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Inspector;
use super::parts::config;
use crate::config_error::Faults;
use crate::error::Error;
use crate::error::value::read_value;
use crate::events::hub::EventHub;
use crate::job::id::MARK;
use crate::job::state::JobState;
use crate::options::overrides::Overrides;
use crate::options::validate;
use crate::task::dispatch::Dispatch;
use crate::task::handle::JobHandle;
use crate::task::shared::TaskShared;
use crate::task::task_ref::TaskRef;

/// How many events are buffered for a wait.
const EVENTS: usize = 256;

/// The most tasks that are cached, because a web page may pass any name.
const KNOWN: usize = 1000;

impl Inspector {
    /// Dispatches a job with this payload, as [`TaskRef::dispatch`] without the type of the task. The options are the defaults of the
    /// App. The payload may be a [`Value`](serde_json::Value), or a [`Box<RawValue>`](RawValue), which keeps numbers and the order of
    /// fields as written.
    pub fn dispatch_json<P: Serialize>(&self, task: &str, payload: P) -> Result<Dispatch<P, Box<RawValue>>, Error> {
        Ok(TaskRef::<P, Box<RawValue>>::new(self.shared(task)?).dispatch(payload))
    }

    /// Dispatches a job again, as a new one with another id: with its input, or with this one, and with its priority, options and key.
    /// The new job has no delay, no unique key and no tick, and does not expire. The old one is unchanged, whatever its state. `None` if
    /// there is no such job.
    ///
    /// # Errors
    /// [`Error::Config`] if a name or an id is not valid, or the job is a node of a workflow: retry its instance instead.
    /// [`Error::PayloadCodec`] if this App cannot decode the input of the job. Awaiting the [`Dispatch`] has errors of its own.
    pub async fn dispatch_copy(
        &self,
        task: &str,
        id: &str,
        input: Option<Box<RawValue>>,
    ) -> Result<Option<Dispatch<Box<RawValue>, Box<RawValue>>>, Error> {
        if id.starts_with(MARK) {
            let rule = "must not be the job of a workflow node";
            return Err(config("id", id, rule, "retry the instance of the workflow"));
        }
        let what = || format!("the input of the job {id} of {task}");
        let Some(copied) = self.to_copy(task, id, input.is_none()).await? else { return Ok(None) };
        let input = match input {
            Some(input) => input,
            None => read_value(&copied.payload, &self.store.codecs, what)?,
        };
        let copy = TaskRef::<Box<RawValue>, Box<RawValue>>::new(self.shared(task)?).dispatch(input);
        let overrides = Overrides { delay: None, tick: None, ..copied.overrides };
        Ok(Some(copy.with_overrides(overrides, copied.priority, copied.key)))
    }

    /// Waits until a job has ended and returns its value as written, as [`JobHandle::result`] without a type.
    /// [`Error::ResultGone`] may also mean `null`, which is not stored.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid, and those of [`JobHandle::result`].
    pub async fn result_json(&self, task: &str, id: &str) -> Result<Box<RawValue>, Error> {
        self.handle(task, id)?.result().await
    }

    /// Waits at most `time` for a job to end, and returns its state: completed, failed or cancelled.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid, [`Error::TimedOut`] if the job did not end in time, and
    /// [`Error::JobNotFound`] if it was never dispatched, or was removed.
    pub async fn wait(&self, task: &str, id: &str, time: Duration) -> Result<JobState, Error> {
        match self.handle(task, id)?.result_within(time).await {
            Ok(_) | Err(Error::ResultGone { .. } | Error::PayloadCodec { .. }) => Ok(JobState::Completed),
            Err(Error::JobFailed(_)) => Ok(JobState::Failed),
            Err(Error::JobCancelled { .. }) => Ok(JobState::Cancelled),
            Err(e) => Err(e),
        }
    }

    fn handle(&self, task: &str, id: &str) -> Result<JobHandle<Box<RawValue>>, Error> {
        TaskRef::<Box<RawValue>, Box<RawValue>>::new(self.shared(task)?).handle(id)
    }

    /// The task, shared by all waits for its jobs and unknown to the App.
    fn shared(&self, task: &str) -> Result<Arc<TaskShared>, Error> {
        let mut known = self.shared.lock();
        if let Some(shared) = known.get(task) {
            return Ok(Arc::clone(shared));
        }
        let mut faults = Faults::default();
        faults.gather(validate::task_name(task));
        let options = faults.gather(crate::options::task::TaskOptions::new().resolve(&self.defaults));
        faults.finish()?;
        let options = options.ok_or(Error::Closed)?;
        // Its own hub keeps its events out of the subscriptions of the App.
        let events = EventHub::new(Arc::clone(&self.store), EVENTS);
        let shared = TaskShared::new(task.into(), Arc::clone(&self.store), options, events);
        if known.len() == KNOWN {
            known.clear();
        }
        known.insert(task.to_owned(), Arc::clone(&shared));
        Ok(shared)
    }
}
