//! Turns of large values: a few are on their way at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::joint::Sign;

/// How many large values a client writes, and how many it reads, at a time.
const AT_ONCE: usize = 8;

/// How often whoever waits looks at those who have a turn, and how long these may be silent.
const SUPERVISION: Duration = Duration::from_secs(1);

/// Who has a turn. One whose runtime nobody drives any more loses it.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    holders: Mutex<Vec<Arc<Holder>>>,
    /// When a turn last ended, and whether well.
    last: Mutex<(Instant, bool)>,
}

#[derive(Debug)]
struct Holder {
    sign: Arc<Sign>,
    lost: AtomicBool,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    holder: Arc<Holder>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn new() -> Arc<Turns> {
        Arc::new(Turns {
            free: Arc::new(Semaphore::new(AT_ONCE)),
            holders: Mutex::default(),
            last: Mutex::new((Instant::now(), true)),
        })
    }

    fn holders(&self) -> MutexGuard<'_, Vec<Arc<Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, (Instant, bool)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, for `time` at least and for as long as those who have one get on with theirs; `None` when they do
    /// not. Cancel safe.
    pub(crate) async fn take(self: &Arc<Self>, time: Duration) -> Option<Turn> {
        let since = Instant::now();
        let free = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(free);
        loop {
            if let Ok(permit) = tokio::time::timeout(SUPERVISION.min(time), &mut free).await {
                let holder = Arc::new(Holder { sign: Sign::new(SUPERVISION), lost: AtomicBool::new(false) });
                self.holders().push(Arc::clone(&holder));
                // Nobody closes the semaphore.
                return Some(Turn { turns: Arc::clone(self), holder, permit: permit.ok() });
            }
            let lost = |holder: &&Arc<Holder>| holder.sign.is_silent() && !holder.lost.swap(true, Ordering::SeqCst);
            self.free.add_permits(self.holders().iter().filter(lost).count());
            let (ended, well) = *self.last();
            let fail = ended >= since && !well;
            if since.elapsed() >= time && fail {
                return None;
            }
        }
    }
}

impl Turn {
    /// Does the work, and shows all the while that somebody does.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn hold<T, E>(self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let done = self.holder.sign.given_by(work).await;
        *self.turns.last() = (Instant::now(), done.is_ok());
        done
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.holders().retain(|holder| !Arc::ptr_eq(holder, &self.holder));
        if self.holder.lost.load(Ordering::SeqCst)
            && let Some(permit) = self.permit.take()
        {
            // Somebody else has it.
            permit.forget();
        }
    }
}
