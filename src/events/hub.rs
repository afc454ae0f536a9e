//! The event hub of an App.

use std::sync::Arc;

use super::channel::Channel;
use super::event::Event;
use super::reader;
use super::result_waiter::ResultWaiter;
use super::source::{Followed, Source};
use super::stream_event::StreamEvent;
use super::subscription::Subscription;
use super::workflow_event::WorkflowEvent;
use crate::backend::engine::Store;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::tables::Tables;
use crate::job::id::JobId;
use crate::stall::action::StalledEvent;

/// The events of one App. All subscribers share one reader for each kind of events.
pub(crate) struct EventHub {
    stalls: Arc<Channel<StalledEvent>>,
    events: Arc<Channel<Event>>,
    /// On a separate connection, only while there is a subscriber.
    workflows: Arc<Channel<WorkflowEvent>>,
}

impl EventHub {
    /// A hub without tasks and readers. `capacity` is how many unread events a subscriber may have.
    pub(crate) fn new(store: Arc<Store>, capacity: usize) -> Arc<EventHub> {
        let (source, workflows) = (Arc::new(Source::new(Arc::clone(&store))), Arc::new(Source::new(store)));
        Arc::new(EventHub {
            stalls: Channel::new(Key::Stalls, StreamEvent::stall, capacity, source.clone(), reader::run),
            events: Channel::new(Key::Events, StreamEvent::job, capacity, source, reader::run),
            workflows: Channel::new(Key::Events, StreamEvent::workflow, capacity, workflows, reader::run),
        })
    }

    /// Adds a task. Running readers follow it from now on, later readers from their own start, for as long as the
    /// returned value is kept.
    pub(crate) fn follow(&self, task: &Arc<str>, tables: &Arc<Tables>) -> Arc<Followed> {
        self.events.source.follow(task, tables)
    }

    /// Adds a workflow, in the same way.
    pub(crate) fn follow_workflow(&self, tables: &Arc<Tables>) -> Arc<Followed> {
        self.workflows.source.follow(&tables.first().task().into(), tables)
    }

    pub(crate) fn stalled(&self) -> Subscription<StalledEvent> {
        self.stalls.subscribe()
    }

    pub(crate) fn all(&self) -> Subscription<Event> {
        self.events.subscribe()
    }

    pub(crate) fn workflows(&self) -> Subscription<WorkflowEvent> {
        self.workflows.subscribe()
    }

    /// Waits for the end of one job, from now on. All callers share one task that polls and, with `listens`, the reader
    /// of [`EventHub::all`]. The cost of an event does not grow with the number of callers.
    pub(crate) fn wait(&self, task: &Arc<str>, keys: &Arc<TaskKeys>, id: &JobId, listens: bool) -> ResultWaiter {
        let listener = listens.then(|| self.events.listen());
        ResultWaiter::new(&self.events.source.waiters, task, keys, id, listener)
    }

    /// Ends the readers, and closes every subscription.
    pub(crate) fn close(&self) {
        self.stalls.close();
        self.events.close();
        self.workflows.close();
    }
}

impl Drop for EventHub {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for EventHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventHub").finish_non_exhaustive()
    }
}
