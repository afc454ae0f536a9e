//! Handlers that wait for the results of other jobs. If such handlers hold all slots, no job proceeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::futures::TaskLocalFuture;

use super::bells::Bells;
use crate::mutex::Mutex;

/// How many results a handler waits for, and since when it waits for at least one.
#[derive(Debug)]
pub(crate) struct Waits {
    state: Mutex<Option<(usize, Instant)>>,
    bells: Arc<Bells>,
}

impl Waits {
    pub(crate) fn new(bells: Arc<Bells>) -> Waits {
        Waits { state: Mutex::default(), bells }
    }

    fn begin(&self) {
        self.state.lock().get_or_insert_with(|| (0, Instant::now())).0 += 1;
        self.bells.check_soon();
    }

    fn end(&self) {
        let mut state = self.state.lock();
        *state = state.and_then(|(count, since)| (count > 1).then(|| (count - 1, since)));
    }

    /// Whether the handler has waited for this long.
    pub(crate) fn lasts(&self, time: Duration) -> bool {
        self.left(time).is_some_and(|left| left.is_zero())
    }

    /// After what time the handler will have waited for this long; `None` if it does not wait.
    pub(crate) fn left(&self, time: Duration) -> Option<Duration> {
        self.state.lock().map(|(_, since)| time.saturating_sub(since.elapsed()))
    }
}

tokio::task_local! {
    /// The waits of the job whose handler is polled.
    static CURRENT: Arc<Waits>;
}

/// Runs the handler of a job, so that its waits for results are counted for the job.
pub(crate) fn as_handler_of<F: Future>(waits: Arc<Waits>, handler: F) -> TaskLocalFuture<Arc<Waits>, F> {
    CURRENT.scope(waits, handler)
}

/// A wait for the result of a job. If a handler waits, its own job is marked as waiting.
pub(crate) struct NotedWait(Option<Arc<Waits>>);

impl NotedWait {
    pub(crate) fn begin() -> NotedWait {
        let waits = CURRENT.try_with(Arc::clone).ok();
        waits.iter().for_each(|waits| waits.begin());
        NotedWait(waits)
    }
}

impl Drop for NotedWait {
    fn drop(&mut self) {
        self.0.iter().for_each(|waits| waits.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_counts_as_waiting_from_first_to_last_result() {
        let waits = Arc::new(Waits::new(Arc::default()));
        let outside = NotedWait::begin();
        assert!(!waits.lasts(Duration::ZERO));
        as_handler_of(waits.clone(), async {
            let (one, two) = (NotedWait::begin(), NotedWait::begin());
            assert!(waits.lasts(Duration::ZERO) && !waits.lasts(Duration::from_secs(60)));
            drop(one);
            assert!(waits.lasts(Duration::ZERO));
            drop(two);
            assert!(!waits.lasts(Duration::ZERO));
        })
        .await;
        drop(outside);
    }
}
