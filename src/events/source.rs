//! The source of the readers of a hub.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio::time::Instant;

use super::result_poller::ResultWaiters;
use crate::backend::engine::Store;
use crate::backend::keys::workflow_of;
use crate::backend::tables::Tables;
use crate::mutex::Mutex;

/// What both readers of a hub share: the followed tasks, and the callers that wait for single jobs.
pub(super) struct Source {
    pub(super) store: Arc<Store>,
    tasks: Mutex<FollowedTasks>,
    pub(super) added: watch::Sender<()>,
    pub(super) waiters: Arc<ResultWaiters>,
}

/// The followed tasks of an App, by name. Unused entries are removed when others are added.
#[derive(Default)]
struct FollowedTasks {
    by_name: HashMap<Arc<str>, Weak<Followed>>,
    tidy_at: usize,
}

/// A task or a workflow whose events are read. A workflow has the tag of its keys as its name.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(super) name: Arc<str>,
    pub(super) tables: Arc<Tables>,
    pub(super) at: Instant,
}

impl Followed {
    /// The name of the task, or of the workflow.
    pub(super) fn name(&self) -> &str {
        workflow_of(&self.name).unwrap_or(&self.name)
    }
}

impl Source {
    pub(super) fn new(store: Arc<Store>) -> Source {
        let waiters = ResultWaiters::new(Arc::clone(&store));
        Source { store, tasks: Mutex::default(), added: watch::Sender::new(()), waiters }
    }

    pub(super) fn follow(&self, task: &Arc<str>, tables: &Arc<Tables>) -> Arc<Followed> {
        let mut tasks = self.tasks.lock();
        if let Some(known) = tasks.by_name.get(task).and_then(Weak::upgrade) {
            return known;
        }
        if tasks.by_name.len() >= tasks.tidy_at {
            tasks.by_name.retain(|_, task| task.strong_count() > 0);
            tasks.tidy_at = tasks.by_name.len() * 2 + 64;
        }
        let followed = Arc::new(Followed { name: Arc::clone(task), tables: Arc::clone(tables), at: Instant::now() });
        tasks.by_name.insert(Arc::clone(task), Arc::downgrade(&followed));
        drop(tasks);
        self.added.send_replace(());
        followed
    }

    /// The tasks that are in use.
    pub(super) fn followed(&self) -> Vec<Arc<Followed>> {
        let tasks = self.tasks.lock();
        tasks.by_name.values().filter_map(Weak::upgrade).collect()
    }
}
