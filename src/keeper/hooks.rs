//! Faults for tests that no input can cause.

use std::collections::BTreeSet;

use crate::mutex::Mutex;

static BREAKING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Makes the keeper of this worker panic at its next tick.
#[doc(hidden)]
pub fn break_keeper(worker_id: &str) {
    BREAKING.lock().insert(worker_id.to_owned());
}

/// Panics if a test has asked for it.
pub(crate) fn keeper_ticks(worker_id: &str) {
    let breaks = BREAKING.lock().remove(worker_id);
    assert!(!breaks, "a test breaks the keeper of {worker_id}");
}
