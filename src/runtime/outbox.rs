//! The outcomes of a task's runs that Redis does not have yet. They are kept next to the held jobs, so that the keeper
//! finds them after the driver was dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::report::Report;
use crate::backend::settle::SEQUENCES;
use crate::mutex::Mutex;

/// Outcomes of finished runs, and the last call of each sequence.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Unreported>);

#[derive(Debug, Default)]
pub(crate) struct Unreported {
    /// Outcomes for the driver. After the driver was dropped: all outcomes that are in no call.
    pub(crate) reports: Vec<Report>,
    /// Outcomes that the driver has collected, while it waits: small and large ones that are in no call.
    pub(crate) collected: (Vec<Report>, VecDeque<Report>),
    pub(crate) calls: [LastCall; SEQUENCES.len()],
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LastCall {
    pub(crate) number: u64,
    /// Its reports, until it is answered.
    pub(crate) under_way: Option<Arc<Vec<Report>>>,
}

impl Outbox {
    pub(crate) fn push(&self, report: Report) {
        self.0.lock().reports.push(report);
    }

    pub(crate) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.0.lock().reports)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().reports.len()
    }

    /// Records that the call of this number was sent in this sequence.
    pub(crate) fn sent(&self, sequence: usize, number: u64, reports: &Arc<Vec<Report>>) {
        self.0.lock().calls[sequence] = LastCall { number, under_way: Some(Arc::clone(reports)) };
    }

    pub(crate) fn answered(&self, sequence: usize) {
        self.0.lock().calls[sequence].under_way = None;
    }

    /// Exchanges the collected outcomes. The driver leaves its own here while it waits: a blocked runtime may never drop
    /// it.
    pub(crate) fn exchange(&self, small: &mut Vec<Report>, large: &mut VecDeque<Report>) {
        let mut unreported = self.0.lock();
        std::mem::swap(&mut unreported.collected.0, small);
        std::mem::swap(&mut unreported.collected.1, large);
    }

    /// Takes back reports that are in no call, when the driver is dropped.
    pub(crate) fn put_back(&self, reports: impl Iterator<Item = Report>) {
        self.0.lock().reports.splice(..0, reports);
    }

    pub(crate) fn take_all(&self) -> Unreported {
        std::mem::take(&mut *self.0.lock())
    }
}
