//! Jobs as JSON: dispatched, waited for and read without their types.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Inspector;
use crate::error::Error;
use crate::events::hub::EventHub;
use crate::faults::Faults;
use crate::job::state::JobState;
use crate::options::validate;
use crate::task::dispatch::Dispatch;
use crate::task::handle::JobHandle;
use crate::task::shared::TaskShared;
use crate::task::task_ref::TaskRef;

/// How many events a wait may be behind.
const EVENTS: usize = 256;

/// How many tasks are remembered; a page that takes their names from anybody must not make it grow for ever.
const KNOWN: usize = 1000;

impl Inspector {
    /// A job with this payload, about to be dispatched: as [`TaskRef::dispatch`], without the type of the task. The options are the
    /// defaults of the App. A [`Value`](serde_json::Value) goes; so does a [`Box<RawValue>`](RawValue), which keeps numbers, and the order of
    /// fields, as they are written.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid.
    pub fn dispatch_json<P: Serialize>(&self, task: &str, payload: P) -> Result<Dispatch<P, Box<RawValue>>, Error> {
        Ok(TaskRef::<P, Box<RawValue>>::new(self.shared(task)?).dispatch(payload))
    }

    /// Waits until a job has ended and returns its value: as [`JobHandle::result`], without a type, as it was written. A value that is
    /// not kept is [`Error::ResultGone`], or `null`, which is not stored.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid, else as [`JobHandle::result`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result_json(&self, task: &str, id: &str) -> Result<Box<RawValue>, Error> {
        self.handle(task, id)?.result().await
    }

    /// Waits until a job has ended, for `time` at most, and tells how: completed, failed or cancelled.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid, [`Error::TimedOut`] if the job has not ended by then, and
    /// [`Error::JobNotFound`] if it was never dispatched, or was removed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self, task: &str, id: &str, time: Duration) -> Result<JobState, Error> {
        match self.handle(task, id)?.result_within(time).await {
            Ok(_) | Err(Error::ResultGone { .. }) => Ok(JobState::Completed),
            Err(Error::JobFailed(_)) => Ok(JobState::Failed),
            Err(Error::JobCancelled { .. }) => Ok(JobState::Cancelled),
            Err(e) => Err(e),
        }
    }

    fn handle(&self, task: &str, id: &str) -> Result<JobHandle<Box<RawValue>>, Error> {
        TaskRef::<Box<RawValue>, Box<RawValue>>::new(self.shared(task)?).handle(id)
    }

    /// The task, the same for all that wait for its jobs: the App does not know of it.
    fn shared(&self, task: &str) -> Result<Arc<TaskShared>, Error> {
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.get(task) {
            return Ok(Arc::clone(shared));
        }
        let mut faults = Faults::default();
        faults.gather(validate::task_name(task));
        let options = faults.gather(crate::options::task::TaskOptions::new().resolve(&self.defaults));
        faults.finish()?;
        let options = options.ok_or(Error::Closed)?;
        // Its own hub: the subscriptions of the App hear nothing of the task, and its reader follows no other.
        let events = EventHub::new(Arc::clone(&self.store), EVENTS);
        let shared = TaskShared::new(task.into(), Arc::clone(&self.store), options, events);
        if known.len() == KNOWN {
            known.clear();
        }
        known.insert(task.to_owned(), Arc::clone(&shared));
        Ok(shared)
    }
}
