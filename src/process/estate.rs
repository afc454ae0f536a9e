//! What a driver has to say to Redis, where the keeper finds it when the driver is gone (`keeper/wind_up.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::outbox::Outbox;
use crate::store::report::Report;
use crate::store::settle::LINES;

/// What a driver that is dropped leaves behind, and the calls that it has under way all the while.
#[derive(Debug, Default)]
pub(crate) struct Estate(Mutex<Left>);

#[derive(Debug, Default)]
pub(crate) struct Left {
    /// By line: the next number, and what the call under way carries.
    pub(crate) lines: [LeftLine; LINES.len()],
    /// Outcomes that no call carries: here while the driver waits, and when it is dropped.
    pub(crate) pending: Vec<Report>,
    pub(crate) large: VecDeque<Report>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LeftLine {
    /// Of the call under way, or of the last one.
    pub(crate) number: u64,
    pub(crate) under_way: Option<Arc<Vec<Report>>>,
}

impl Estate {
    pub(crate) fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sent(&self, line: usize, number: u64, reports: &Arc<Vec<Report>>) {
        self.left().lines[line] = LeftLine { number, under_way: Some(Arc::clone(reports)) };
    }

    pub(crate) fn answered(&self, line: usize) {
        self.left().lines[line].under_way = None;
    }

    /// Puts in what no call carries, or takes it out again.
    pub(crate) fn swap_pending(&self, pending: &mut Vec<Report>, large: &mut VecDeque<Report>) {
        let mut left = self.left();
        std::mem::swap(&mut left.pending, pending);
        std::mem::swap(&mut left.large, large);
    }

    /// All of it, with the outcomes of finished runs.
    pub(crate) fn take(&self, outbox: &Outbox) -> Left {
        let mut left = std::mem::take(&mut *self.left());
        left.pending.append(&mut outbox.take());
        left
    }
}
