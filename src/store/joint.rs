//! Work in tasks of its own: what several callers wait for and none of them owns, and what ends with whoever waits for it.
//!
//! A future is polled only as long as its owner likes. What others wait for therefore runs in a task of its own, which
//! shows by a [`Sign`] that it is polled: a runtime that nobody drives any more polls no tasks either, and then whoever
//! waits takes over.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;

/// How long the carrier of work for others may show no sign before one of them takes over.
pub(crate) const SILENCE: Duration = Duration::from_millis(50);

/// The same for work that others can spare for longer.
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

/// Work of one kind, of which at most one attempt is under way.
#[derive(Debug)]
pub(super) struct Joint<T> {
    attempt: Mutex<Option<Attempt<T>>>,
}

type Answer<T> = watch::Receiver<Option<Arc<Result<T, Error>>>>;

#[derive(Clone, Debug)]
struct Attempt<T> {
    sign: Arc<Sign>,
    answer: Answer<T>,
}

impl<T> Default for Joint<T> {
    fn default() -> Self {
        Joint { attempt: Mutex::new(None) }
    }
}

impl<T: Clone + Send + Sync + 'static> Joint<T> {
    /// Waits for the attempt that is under way, or begins one. An attempt whose runtime is gone or not driven is left.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt goes on for the others.
    pub(super) async fn attempt<F>(&self, work: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        loop {
            let Attempt { sign, mut answer } = self.under_way(&work);
            loop {
                match tokio::time::timeout(SILENCE, answer.wait_for(Option::is_some)).await {
                    Ok(Ok(found)) => match found.as_deref() {
                        Some(Ok(done)) => return Ok(done.clone()),
                        Some(Err(e)) => return Err(e.again()),
                        None => {}
                    },
                    // Its runtime was shut down.
                    Ok(Err(_)) => break,
                    Err(_) if sign.is_silent() => break,
                    Err(_) => {}
                }
            }
        }
    }

    fn under_way<F>(&self, work: impl Fn() -> F) -> Attempt<T>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut slot = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &*slot {
            let is_over = attempt.answer.borrow().is_some() || attempt.answer.has_changed().is_err();
            if !is_over && !attempt.sign.is_silent() {
                return attempt.clone();
            }
        }
        let (sender, answer) = watch::channel(None);
        let sign = Sign::new(SILENCE);
        let (work, its_sign) = (work(), Arc::clone(&sign));
        tokio::spawn(async move {
            let done = its_sign.given_by(work).await;
            // Nobody may wait any more.
            sender.send_replace(Some(Arc::new(done)));
        });
        slot.insert(Attempt { sign, answer }).clone()
    }
}

/// Does the work in a task that ends with whoever waits for it.
///
/// # Errors
/// Those of the work; `Closed` when the runtime is gone.
pub(crate) async fn own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match AbortOnDropHandle::new(tokio::spawn(work)).await {
        Ok(done) => done,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(Error::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn those_who_come_together_share_one_attempt_and_the_next_begins_anew() {
        let (joint, begun) = (Joint::default(), AtomicUsize::new(0));
        let work = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                Ok(number)
            }
        };
        let (one, two) = tokio::join!(joint.attempt(work), joint.attempt(work));
        assert_eq!((one.unwrap(), two.unwrap()), (0, 0));
        assert_eq!(joint.attempt(work).await.unwrap(), 1);
    }

    #[test]
    fn an_attempt_on_a_runtime_that_nobody_drives_is_left() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (idle, driven, joint) = (runtime(), runtime(), Joint::default());
        let never = || std::future::pending::<Result<u8, Error>>();
        // It begins here, and is not polled any more when the time is over.
        idle.block_on(async {
            tokio::time::timeout(Duration::from_millis(1), joint.attempt(never)).await.unwrap_err()
        });
        let answer = driven.block_on(joint.attempt(|| async { Ok(7) }));
        assert_eq!(answer.unwrap(), 7);
    }
}
