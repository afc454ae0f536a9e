//! Work in tasks of its own: what several callers wait for and none of them owns, and what ends with whoever waits for it.
//!
//! A future is polled only as long as its owner likes. What others wait for therefore runs in a task of its own, which
//! shows by a [`Sign`] that it is polled: a runtime that nobody drives any more polls no tasks either, and then whoever
//! waits takes over.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the carrier of work for others may show no sign before one of them takes over.
pub(crate) const SUPERVISION: Duration = Duration::from_secs(1);

/// When a carrier was polled last.
#[derive(Debug)]
pub(crate) struct Sign {
    last: Mutex<Instant>,
    /// After how long it counts as silent.
    silence: Duration,
}

impl Sign {
    pub(crate) fn new(silence: Duration) -> Arc<Sign> {
        Arc::new(Sign { last: Mutex::new(Instant::now()), silence })
    }

    /// When it was polled last.
    pub(crate) fn given_at(&self) -> Instant {
        *self.last()
    }

    fn last(&self) -> MutexGuard<'_, Instant> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the carrier is no longer polled.
    pub(crate) fn is_silent(&self) -> bool {
        self.last().elapsed() > self.silence
    }

    /// Runs the work, and shows all the while that it is polled.
    ///
    /// # Cancel safety
    /// As the work.
    pub(crate) async fn given_by<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let shown = std::future::poll_fn(|cx| {
            *self.last() = Instant::now();
            work.as_mut().poll(cx)
        });
        tokio::pin!(shown);
        loop {
            // Polled as often when nothing happens.
            if let Ok(done) = tokio::time::timeout(self.silence / 3, &mut shown).await {
                return done;
            }
        }
    }
}
