//! A caller that waits for the end of one job.

use std::sync::Arc;
use std::time::Duration;

use super::channel::Listener;
use super::event::Event;
use super::result_poller::{End, ResultWaiters, Waiting};
use crate::backend::keys::TaskKeys;
use crate::error::Error;
use crate::job::id::JobId;

/// A caller that waits for the end of one job.
pub(crate) struct ResultWaiter {
    waiting: Arc<Waiting>,
    waiters: Arc<ResultWaiters>,
    listener: Option<Listener<Event>>,
}

impl ResultWaiter {
    /// Waits from now on. Keeps the `listener` meanwhile.
    pub(super) fn new(
        waiters: &Arc<ResultWaiters>,
        task: &Arc<str>,
        keys: &Arc<TaskKeys>,
        id: &JobId,
        listener: Option<Listener<Event>>,
    ) -> ResultWaiter {
        ResultWaiter { waiting: waiters.poll_for_end(task, keys, id), waiters: Arc::clone(waiters), listener }
    }

    /// Waits until the job has ended, or turns out not to exist.
    ///
    /// # Errors
    /// Those that waiting cannot fix.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn end(&self) -> Result<End, Error> {
        loop {
            self.waiters.ensure_poller();
            if let Some(listener) = &self.listener {
                listener.start();
            }
            if let Some(found) = self.waiting.end() {
                return found;
            }
            self.waiting.notice.notified().await;
        }
    }

    /// The event that ended the job, if it arrives within the time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn event(&self, time: Duration) -> Option<Event> {
        let arrived = async {
            loop {
                if let Some(event) = self.waiting.event() {
                    return event;
                }
                self.waiting.notice.notified().await;
            }
        };
        tokio::time::timeout(time, arrived).await.ok()
    }

    /// Whether it also waits for events.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some()
    }
}

impl Drop for ResultWaiter {
    fn drop(&mut self) {
        self.waiters.forget(&self.waiting);
    }
}
