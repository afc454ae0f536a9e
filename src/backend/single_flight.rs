//! Work that several callers need at the same time and that is done once for all.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime::{self, Handle};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::mutex::Mutex;

/// Work of one kind, with at most one attempt at a time on each runtime.
///
/// An attempt runs in its own task, since a caller may stop polling its future. Callers on different runtimes do not
/// share one: handlers may block the user's runtime, and the keeper must not wait for that.
#[derive(Debug)]
pub(super) struct SingleFlight<T>(Mutex<HashMap<runtime::Id, Answer<T>>>);

type Answer<T> = watch::Receiver<Option<Arc<Result<T>>>>;

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        SingleFlight(Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Waits for the attempt that is under way on the runtime, or starts one.
    ///
    /// # Errors
    /// Those of the work; `Closed` if the runtime has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt continues for the others.
    pub(super) async fn attempt<F>(&self, runtime: &Handle, work: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut answer = self.join(runtime, work);
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(found)) => match &**found {
                Ok(done) => Ok(done.clone()),
                Err(e) => Err(e.again()),
            },
            Ok(None) | Err(_) => Err(Error::Closed),
        }
    }

    fn join<F>(&self, runtime: &Handle, work: impl FnOnce() -> F) -> Answer<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut attempts = self.0.lock();
        // If the sender is gone, it has answered, or its runtime has ended.
        attempts.retain(|_, answer| answer.borrow().is_none() && answer.has_changed().is_ok());
        if let Some(answer) = attempts.get(&runtime.id()) {
            return answer.clone();
        }
        let (sender, answer) = watch::channel(None);
        attempts.insert(runtime.id(), answer.clone());
        let work = work();
        // No receiver may be left.
        runtime.spawn(work.map(move |done| drop(sender.send_replace(Some(Arc::new(done))))).boxed());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn concurrent_callers_share_one_attempt() {
        let (flight, begun) = (SingleFlight::default(), AtomicUsize::new(0));
        let work = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                Ok(number)
            }
        };
        let runtime = Handle::current();
        let (one, two) = tokio::join!(flight.attempt(&runtime, work), flight.attempt(&runtime, work));
        assert_eq!((one.unwrap(), two.unwrap()), (0, 0));
        assert_eq!(flight.attempt(&runtime, work).await.unwrap(), 1);
    }

    #[test]
    fn a_blocked_runtime_does_not_delay_attempts_of_others() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (blocked, free, flight) = (runtime(), runtime(), SingleFlight::default());
        let never = || std::future::pending::<Result<u8>>();
        let attempt = flight.attempt(blocked.handle(), never);
        free.block_on(async { tokio::time::timeout(Duration::from_millis(1), attempt).await }).unwrap_err();
        let answer = free.block_on(flight.attempt(free.handle(), || async { Ok(7) }));
        assert_eq!(answer.unwrap(), 7);
        // Nor does a caller whose runtime has ended.
        let handle = blocked.handle().clone();
        drop(blocked);
        let answer = free.block_on(flight.attempt(&handle, || async { Ok(7) }));
        assert!(matches!(answer, Err(Error::Closed)));
    }
}
