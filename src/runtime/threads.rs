//! Threads for handlers that block.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;

/// Runs blocking handlers of one task on threads of the runtime, a limited number at a time. A run that timed out keeps its thread until
/// its function has returned.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<OnceLock<Arc<Semaphore>>>);

impl Threads {
    /// Sets how many run at a time. The first call counts.
    pub(crate) fn limit(&self, count: usize) {
        let _ = self.0.set(Arc::new(Semaphore::new(count)));
    }

    /// Runs the function on a thread. If the future is dropped before a thread is free, the function does not run.
    ///
    /// # Panics
    /// If the function does.
    pub(crate) async fn run<T: Send + 'static>(self, run: impl FnOnce() -> T + Send + 'static) -> T {
        let free = Arc::clone(self.0.get_or_init(|| Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))));
        let (permit, span) = (free.acquire_owned().await, Span::current());
        let working = Arc::new(AtomicBool::new(true));
        // Dropped when the function returns, or does not begin.
        let returned = Returned(Arc::clone(&working));
        let overtime = Overtime { working, span: span.clone() };
        let ended = AbortOnDropHandle::new(spawn_blocking(move || {
            let _permit = permit;
            let _returned = returned;
            span.in_scope(run)
        }));
        let ended = ended.await;
        drop(overtime);
        match ended {
            Ok(value) => value,
            Err(e) if e.is_panic() => resume_unwind(e.into_panic()),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        }
    }
}

/// How long a function may work on after its run is over before the log says so.
const LONGEST_OVERTIME: Duration = Duration::from_secs(1);

/// Whether a function works; no longer once this is dropped.
struct Returned(Arc<AtomicBool>);

impl Drop for Returned {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// If it is dropped while the function works, the run is over.
struct Overtime {
    working: Arc<AtomicBool>,
    span: Span,
}

impl Drop for Overtime {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.working.load(Ordering::SeqCst), Handle::try_current()) else { return };
        let (working, span) = (Arc::clone(&self.working), self.span.clone());
        runtime.spawn(async move {
            tokio::time::sleep(LONGEST_OVERTIME).await;
            if working.load(Ordering::SeqCst) {
                span.in_scope(|| {
                    tracing::warn!(
                        "a blocking handler works on after its run is over; return when ctx.heartbeat() fails"
                    );
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_function_whose_run_is_over_before_a_thread_is_free_does_not_run() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        let (open, opened) = mpsc::channel::<()>();
        let (ran, runs) = mpsc::channel();
        runtime.block_on(async {
            // Something else of the program has the only thread.
            let other = spawn_blocking(move || opened.recv());
            let threads = Threads::default();
            let (too_late, in_time) = (ran.clone(), ran);
            let run = threads.clone().run(move || too_late.send("too late"));
            assert!(tokio::time::timeout(Duration::from_millis(10), run).await.is_err());
            open.send(()).unwrap();
            other.await.unwrap().unwrap();
            threads.run(move || in_time.send("in time")).await.unwrap();
        });
        assert_eq!(runs.iter().collect::<Vec<_>>(), ["in time"]);
    }
}
