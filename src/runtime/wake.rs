//! Which tasks of a worker are idle, and which were woken.

use std::collections::BTreeSet;

use tokio::sync::Notify;

use crate::mutex::Mutex;

/// The tasks that are idle, those that the current blocking call waits for, those that were woken, and those that
/// cannot use their marker.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    state: Mutex<WakeState>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct WakeState {
    idle: BTreeSet<usize>,
    /// Tasks that became idle since the last [`Wake::take_came`].
    came: BTreeSet<usize>,
    armed: BTreeSet<usize>,
    woken: BTreeSet<usize>,
    returned: BTreeSet<usize>,
    /// Tasks that check a moment later, since the worker that took their marker may be frozen.
    spare: BTreeSet<usize>,
}

impl Wake {
    /// Records whether a driver can use a marker. Without a free slot it cannot.
    pub(crate) fn set_idle(&self, task: usize, idle: bool) {
        let mut state = self.state.lock();
        if !idle {
            state.idle.remove(&task);
        } else if state.idle.insert(task) {
            state.came.insert(task);
            if !state.armed.contains(&task) {
                self.changed.notify_one();
            }
        }
    }

    /// Whether a marker came since the last call.
    pub(crate) fn take_woken(&self, task: usize) -> bool {
        self.state.lock().woken.remove(&task)
    }

    /// Records that a spare marker of the task was taken.
    pub(crate) fn add_spare(&self, task: usize) {
        self.state.lock().spare.insert(task);
    }

    /// Whether a spare marker came since the last call.
    pub(crate) fn take_spare(&self, task: usize) -> bool {
        self.state.lock().spare.remove(&task)
    }

    /// Returns the marker that woke the task, for another worker: this one cannot claim now.
    pub(crate) fn give_back(&self, task: usize) {
        self.state.lock().returned.insert(task);
        self.changed.notify_one();
    }

    /// The tasks whose markers must be put back. If the worker stops, those are all markers that no driver used.
    pub(crate) fn take_returned(&self, stopping: bool) -> BTreeSet<usize> {
        let mut state = self.state.lock();
        let mut returned = std::mem::take(&mut state.returned);
        if stopping {
            returned.append(&mut state.woken);
        }
        returned
    }

    /// Wakes the task if it is still idle.
    pub(crate) fn wake(&self, task: usize) -> bool {
        let mut state = self.state.lock();
        let was_idle = state.idle.remove(&task);
        if was_idle {
            state.woken.insert(task);
        }
        was_idle
    }

    /// The tasks that became idle since the last call, and still are.
    pub(crate) fn take_came(&self) -> Vec<usize> {
        let mut state = self.state.lock();
        let came = std::mem::take(&mut state.came);
        came.intersection(&state.idle).copied().collect()
    }

    pub(crate) fn is_idle(&self, task: usize) -> bool {
        self.state.lock().idle.contains(&task)
    }

    /// The tasks to block for from now on.
    pub(crate) fn arm(&self) -> Vec<usize> {
        let mut state = self.state.lock();
        state.armed = state.idle.clone();
        state.armed.iter().copied().collect()
    }

    pub(crate) fn disarm(&self) {
        self.state.lock().armed.clear();
    }
}
