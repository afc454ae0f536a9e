//! Signals to the keeper about a task.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::clock::Moment;

/// Signals to the keeper about a task.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    /// Some jobs need a heartbeat soon.
    pub(crate) rung: Notify,
    /// A handler has written a note.
    pub(crate) noted: Notify,
    /// When the keeper checks the held jobs next, ms on the boot-time clock. To check each of very many jobs at each
    /// tick would cost the keeper more time than their heartbeats.
    check_at: AtomicU64,
}

impl Bells {
    /// Asks for a check of the held jobs at this moment at the latest.
    pub(crate) fn check_by(&self, at: Moment) {
        self.check_at.fetch_min(at.as_millis(), Ordering::SeqCst);
    }

    /// Asks for a check of the held jobs at the next tick.
    pub(crate) fn check_soon(&self) {
        self.check_at.store(0, Ordering::SeqCst);
    }

    /// Whether a check is due. The caller then checks each held job, and asks for the next check.
    pub(crate) fn take_check(&self, now: Moment) -> bool {
        let is_due = self.check_at.load(Ordering::SeqCst) <= now.as_millis();
        if is_due {
            self.check_at.store(u64::MAX, Ordering::SeqCst);
        }
        is_due
    }
}
