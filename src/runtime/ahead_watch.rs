//! What the driver says to the keeper about the jobs that an adaptive prefetch holds, so that the keeper hands them back if
//! handlers block every thread of the driver's runtime.
//!
//! A job is either started by the driver or handed back by the keeper: each takes the flag `AHEAD` of the job first.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, Moment};

/// How late the driver may be.
const GRACE: Duration = Duration::from_millis(3);

#[derive(Debug, Default)]
pub(crate) struct AheadWatch {
    /// When the keeper acts unless the driver has run before, ms; 0: no job waits.
    due: AtomicU64,
    /// Whether the keeper looks by itself.
    is_watched: AtomicBool,
    bell: Notify,
    /// Whether the keeper has taken jobs since the driver last asked.
    has_taken: AtomicBool,
    /// How many jobs the keeper is handing back.
    under_way: AtomicUsize,
}

impl AheadWatch {
    /// The driver runs now, and will run again after this time. `None`: no job waits.
    pub(crate) fn will_run(&self, again: Option<Duration>) {
        let due = again.map_or(0, |again| clock::now().after(again + GRACE).as_millis());
        if due == 0 && self.due.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.due.store(due, Ordering::SeqCst);
        if due > 0 && !self.is_watched.load(Ordering::SeqCst) {
            self.bell.notify_one();
        }
    }

    /// Whether jobs wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.due.load(Ordering::SeqCst) > 0
    }

    /// Whether jobs wait and the driver has not run for too long.
    pub(crate) fn is_overdue(&self) -> bool {
        let due = self.due.load(Ordering::SeqCst);
        due > 0 && clock::now() > Moment::from_millis(due)
    }

    /// Waits until jobs wait for the first time. Then the keeper looks by itself, until it rests. Cancel safe.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
        self.is_watched.store(true, Ordering::SeqCst);
    }

    /// Whether the keeper may stop looking: no job waits.
    pub(crate) fn rests(&self) -> bool {
        if self.is_waiting() {
            return false;
        }
        self.is_watched.store(false, Ordering::SeqCst);
        if self.is_waiting() {
            // The driver may have seen that the keeper looks.
            self.bell.notify_one();
        }
        true
    }

    /// The keeper begins to hand back jobs. It counts as one job until the result is dropped.
    pub(crate) fn begin(&self) -> HandBack<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        HandBack { watch: self, jobs: 1 }
    }

    /// The keeper took these jobs and hands them back, until the result is dropped.
    pub(crate) fn takes(&self, jobs: usize) -> HandBack<'_> {
        self.under_way.fetch_add(jobs, Ordering::SeqCst);
        self.has_taken.store(true, Ordering::SeqCst);
        HandBack { watch: self, jobs }
    }

    /// How many jobs the keeper is handing back.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// Whether the keeper has taken jobs since the last time.
    pub(crate) fn has_taken(&self) -> bool {
        self.has_taken.load(Ordering::Relaxed) && self.has_taken.swap(false, Ordering::SeqCst)
    }
}

/// Jobs that the keeper hands back, until it is dropped.
pub(crate) struct HandBack<'a> {
    watch: &'a AheadWatch,
    jobs: usize,
}

impl Drop for HandBack<'_> {
    fn drop(&mut self) {
        self.watch.under_way.fetch_sub(self.jobs, Ordering::SeqCst);
    }
}
