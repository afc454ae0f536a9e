//! What everything of one task shares.

use std::sync::{Arc, OnceLock};

use super::dispatcher::Dispatcher;
use crate::events::hub::EventHub;
use crate::events::source::Followed;
use crate::options::resolved::Resolved;
use crate::process::handler::Hook;
use crate::store::engine::Store;
use crate::store::keys::TaskKeys;

/// What everything of one task shares.
pub(crate) struct TaskShared {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) store: Arc<Store>,
    pub(crate) options: Resolved,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) events: Arc<EventHub>,
    /// What runs before a job has ended. It is set where the task has its handler, until a worker is made.
    pub(crate) hook: OnceLock<Option<Hook>>,
    /// While it is kept, readers of events follow the task.
    pub(super) followed: Arc<Followed>,
}

impl TaskShared {
    /// A task whose name and options were checked; its events are read from now on, for as long as anybody has it.
    pub(crate) fn new(name: Arc<str>, store: Arc<Store>, options: Resolved, events: Arc<EventHub>) -> Arc<TaskShared> {
        let keys = Arc::new(store.task_keys(&name));
        let followed = events.follow(&name, &keys);
        let dispatcher = Dispatcher::new(store.clone(), keys.clone());
        let hook = OnceLock::new();
        Arc::new(TaskShared { name, keys, store, options, dispatcher, events, hook, followed })
    }
}
