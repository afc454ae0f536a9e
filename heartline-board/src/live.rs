//! The pages that listen for changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::sync::broadcast;

/// How many pages listen at most: one more asks by itself.
const STREAMS: usize = 100;

/// How many changes a page may be behind until it is told that anything may have changed.
const BEHIND: usize = 16;

/// What has changed, as a page reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    pub(crate) tasks: Vec<String>,
    pub(crate) workers: bool,
    /// Anything may have.
    pub(crate) all: bool,
    /// Redis does not answer.
    pub(crate) away: bool,
}

/// The pages that listen.
pub(crate) struct Live {
    pub(crate) told: broadcast::Sender<Changed>,
    pub(crate) places: Arc<Semaphore>,
    /// Whether somebody looks for them.
    is_looked: Mutex<bool>,
}

impl Live {
    pub(crate) fn new() -> Live {
        let (told, _) = broadcast::channel(BEHIND);
        Live { told, places: Arc::new(Semaphore::new(STREAMS)), is_looked: Mutex::new(false) }
    }

    pub(crate) fn is_looked(&self) -> MutexGuard<'_, bool> {
        self.is_looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
