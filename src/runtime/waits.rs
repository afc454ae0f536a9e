//! Handlers that wait for the results of other jobs. If such handlers hold all slots, no job proceeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::futures::TaskLocalFuture;

use crate::mutex::Mutex;

/// How many results a handler waits for, and since when it waits for at least one.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Option<(usize, Instant)>>);

impl Waits {
    fn begin(&self) {
        self.0.lock().get_or_insert_with(|| (0, Instant::now())).0 += 1;
    }

    fn end(&self) {
        let mut state = self.0.lock();
        *state = state.and_then(|(count, since)| (count > 1).then(|| (count - 1, since)));
    }

    /// Whether the handler has waited for this long.
    pub(crate) fn lasts(&self, time: Duration) -> bool {
        self.0.lock().is_some_and(|(_, since)| since.elapsed() >= time)
    }
}

/// A job whose handler may wait.
pub(crate) trait HasWaits: Send + Sync {
    fn waits(&self) -> &Waits;
}

tokio::task_local! {
    /// The job whose handler is polled.
    static CURRENT: Arc<dyn HasWaits>;
}

/// Runs the handler of a job, so that its waits for results are counted for the job.
pub(crate) fn as_handler_of<F: Future>(job: Arc<dyn HasWaits>, handler: F) -> TaskLocalFuture<Arc<dyn HasWaits>, F> {
    CURRENT.scope(job, handler)
}

/// A wait for the result of a job. If a handler waits, its own job is marked as waiting.
pub(crate) struct NotedWait(Option<Arc<dyn HasWaits>>);

impl NotedWait {
    pub(crate) fn begin() -> NotedWait {
        let job = CURRENT.try_with(Arc::clone).ok();
        job.iter().for_each(|job| job.waits().begin());
        NotedWait(job)
    }
}

impl Drop for NotedWait {
    fn drop(&mut self) {
        self.0.iter().for_each(|job| job.waits().end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Job(Waits);

    impl HasWaits for Job {
        fn waits(&self) -> &Waits {
            &self.0
        }
    }

    #[tokio::test]
    async fn a_handler_counts_as_waiting_from_first_to_last_result() {
        let job = Arc::new(Job::default());
        let outside = NotedWait::begin();
        assert!(!job.0.lasts(Duration::ZERO));
        as_handler_of(job.clone(), async {
            let (one, two) = (NotedWait::begin(), NotedWait::begin());
            assert!(job.0.lasts(Duration::ZERO) && !job.0.lasts(Duration::from_secs(60)));
            drop(one);
            assert!(job.0.lasts(Duration::ZERO));
            drop(two);
            assert!(!job.0.lasts(Duration::ZERO));
        })
        .await;
        drop(outside);
    }
}
