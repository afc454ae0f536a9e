//! The event streams of open pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::sync::broadcast;

/// The most event streams. Further pages poll.
const STREAMS: usize = 100;

/// How many changes a stream buffers. A page that missed some reloads everything.
const BUFFERED: usize = 16;

/// A change, as the page receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    pub(crate) tasks: Vec<String>,
    pub(crate) workers: bool,
    /// Anything may have changed.
    pub(crate) all: bool,
    /// Redis does not answer.
    pub(crate) away: bool,
}

/// The event streams.
pub(crate) struct Live {
    pub(crate) changes: broadcast::Sender<Changed>,
    pub(crate) places: Arc<Semaphore>,
    /// Whether a tokio task reads the fleet for them.
    is_looked: Mutex<bool>,
}

impl Live {
    pub(crate) fn new() -> Live {
        let (changes, _) = broadcast::channel(BUFFERED);
        Live { changes, places: Arc::new(Semaphore::new(STREAMS)), is_looked: Mutex::new(false) }
    }

    pub(crate) fn is_looked(&self) -> MutexGuard<'_, bool> {
        self.is_looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
