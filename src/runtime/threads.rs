//! Threads for handlers that block.

use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
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

    /// # Panics
    /// If the function does.
    pub(crate) async fn run<T: Send + 'static>(self, run: impl FnOnce() -> T + Send + 'static) -> T {
        let free = Arc::clone(self.0.get_or_init(|| Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))));
        let (permit, span) = (free.acquire_owned().await, Span::current());
        let ended = spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(run)
        });
        match ended.await {
            Ok(value) => value,
            Err(e) if e.is_panic() => resume_unwind(e.into_panic()),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        }
    }
}
