//! Outcomes of finished runs, on their way to the driver.

use std::sync::{Mutex, PoisonError};

use crate::store::report::Report;

/// Outcomes of finished runs, on their way to the driver.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Vec<Report>>);

impl Outbox {
    pub(crate) fn push(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }

    pub(crate) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
