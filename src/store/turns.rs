//! Turns of large values: a few are on their way at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::joint::{SUPERVISION, Sign};

/// How many large values a client writes, and how many it reads, at a time.
const AT_ONCE: usize = 8;

/// Who has a turn. One whose runtime nobody drives any more loses it.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<TurnState>,
    /// Rings when a turn ends. Only a hint: it may ring for somebody whom nobody polls any more.
    freed: Notify,
}

#[derive(Debug)]
struct TurnState {
    holders: Vec<Arc<Sign>>,
    /// When a turn last ended, and whether well.
    last: (Instant, bool),
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    sign: Arc<Sign>,
}

impl Turns {
    pub(super) fn new() -> Arc<Turns> {
        let state = TurnState { holders: Vec::new(), last: (Instant::now(), true) };
        Arc::new(Turns { state: Mutex::new(state), freed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, for `time` at least and for as long as those who have one get on with theirs; `None` when they do
    /// not. Cancel safe.
    pub(crate) async fn take(self: &Arc<Self>, time: Duration) -> Option<Turn> {
        let since = Instant::now();
        loop {
            if let Some(turn) = self.try_take() {
                return Some(turn);
            }
            let _ = tokio::time::timeout(SUPERVISION.min(time), self.freed.notified()).await;
            let (ended, well) = self.state().last;
            let fail = ended >= since && !well;
            if since.elapsed() >= time && fail {
                return None;
            }
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        state.holders.retain(|holder| !holder.is_silent());
        if state.holders.len() >= AT_ONCE {
            return None;
        }
        let sign = Sign::new(SUPERVISION);
        state.holders.push(Arc::clone(&sign));
        Some(Turn { turns: Arc::clone(self), sign })
    }
}

impl Turn {
    /// Does the work, and shows all the while that somebody does.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn hold<T, E>(self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let done = self.sign.given_by(work).await;
        self.turns.state().last = (Instant::now(), done.is_ok());
        done
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.state().holders.retain(|holder| !Arc::ptr_eq(holder, &self.sign));
        self.turns.freed.notify_one();
    }
}
