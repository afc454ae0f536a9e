//! Bounds how many large values are transferred at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::mutex::Mutex;

/// How many large values a client writes, and how many it reads, at a time.
const AT_ONCE: usize = 8;

/// How often a waiting caller checks how the transfers of others ended.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    /// When a transfer last ended, and whether it succeeded.
    last: Mutex<(Instant, bool)>,
}

/// A permit, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Arc<Turns> {
        let free = Arc::new(Semaphore::new(AT_ONCE));
        Arc::new(Turns { free, last: Mutex::new((Instant::now(), true)) })
    }

    /// Waits for a permit for at least `time`, and longer while transfers of others succeed; then returns `None`.
    /// Cancel safe.
    pub(crate) async fn take(self: &Arc<Self>, time: Duration) -> Option<Turn> {
        let since = Instant::now();
        let free = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(free);
        loop {
            if let Ok(permit) = tokio::time::timeout(LOOK.min(time), &mut free).await {
                return Some(Turn { turns: Arc::clone(self), _permit: permit.ok()? });
            }
            let (ended, succeeded) = *self.last.lock();
            if since.elapsed() >= time && ended >= since && !succeeded {
                return None;
            }
        }
    }
}

impl Turn {
    /// Does the work, and returns the permit.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn hold<T, E>(self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let done = work.await;
        *self.turns.last.lock() = (Instant::now(), done.is_ok());
        done
    }
}
