//! The event hub of an app: whoever subscribes shares one reader a kind.

use std::sync::Arc;

use super::channel::Channel;
use super::event::Event;
use super::reader;
use super::source::{Followed, Source};
use super::stream_event::StreamEvent;
use super::subscription::Subscription;
use super::waiter::Waiter;
use super::workflow_event::WorkflowEvent;
use crate::job::id::JobId;
use crate::stall::action::StalledEvent;
use crate::store::engine::Store;
use crate::store::keys::{Key, TaskKeys};
use crate::store::tables::Tables;

/// The events of one app: whoever subscribes shares one reader a kind.
pub(crate) struct EventHub {
    stalls: Arc<Channel<StalledEvent>>,
    events: Arc<Channel<Event>>,
    /// Over a connection of their own, for whoever asks for them.
    workflows: Arc<Channel<WorkflowEvent>>,
}

impl EventHub {
    /// A hub without tasks and readers. `capacity` is how many events a subscriber may be behind.
    pub(crate) fn new(store: Arc<Store>, capacity: usize) -> Arc<EventHub> {
        let (source, workflows) = (Arc::new(Source::new(Arc::clone(&store))), Arc::new(Source::new(store)));
        Arc::new(EventHub {
            stalls: Channel::new(Key::Stalls, StreamEvent::stall, capacity, source.clone(), reader::run),
            events: Channel::new(Key::Events, StreamEvent::job, capacity, source, reader::run),
            workflows: Channel::new(Key::Events, StreamEvent::workflow, capacity, workflows, reader::run),
        })
    }

    /// Adds a task: running readers follow it from now on, later ones from their own start. It is followed for as long as
    /// anybody keeps what is returned.
    pub(crate) fn follow(&self, task: &Arc<str>, tables: &Arc<Tables>) -> Arc<Followed> {
        self.events.source.follow(task, tables)
    }

    /// Adds a workflow, in the same way.
    pub(crate) fn follow_workflow(&self, tables: &Arc<Tables>) -> Arc<Followed> {
        self.workflows.source.follow(&tables.first().task().into(), tables)
    }

    /// The stalls of every followed task, from now on.
    pub(crate) fn stalled(&self) -> Subscription<StalledEvent> {
        self.stalls.subscribe()
    }

    /// Every event of every followed task, from now on.
    pub(crate) fn all(&self) -> Subscription<Event> {
        self.events.subscribe()
    }

    /// Every event of every followed workflow, from now on.
    pub(crate) fn workflows(&self) -> Subscription<WorkflowEvent> {
        self.workflows.subscribe()
    }

    /// Waits for the end of one job, from now on. Any number of these share one task that looks, and with `listens` the
    /// reader of [`EventHub::all`]; an event costs the same however many wait.
    pub(crate) fn wait(&self, task: &Arc<str>, keys: &Arc<TaskKeys>, id: &JobId, listens: bool) -> Waiter {
        let listener = listens.then(|| self.events.listen());
        Waiter::new(&self.events.source.waiters, task, keys, id, listener)
    }

    /// Ends the readers; every subscriber is told that nothing follows.
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
