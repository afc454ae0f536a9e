//! Which tasks of a worker are idle, and which were woken.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The lines over which a worker waits for work: one for all of its tasks, or one for each.
#[derive(Debug)]
pub(crate) struct Wakes(Vec<Wake>);

impl Wakes {
    pub(crate) fn new(lines: usize) -> Wakes {
        Wakes((0..lines.max(1)).map(|_| Wake::default()).collect())
    }

    /// How many there are.
    pub(crate) fn lines(&self) -> usize {
        self.0.len()
    }

    /// That of the task with this index; of all tasks where there is one.
    pub(crate) fn of(&self, task: usize) -> &Wake {
        &self.0[task.min(self.0.len() - 1)]
    }
}

/// Which tasks are idle, which of them the block under way waits for, which were woken, and which of those cannot use it.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    state: Mutex<WakeState>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct WakeState {
    idle: BTreeSet<usize>,
    armed: BTreeSet<usize>,
    woken: BTreeSet<usize>,
    returned: BTreeSet<usize>,
}

impl Wake {
    fn state(&self) -> MutexGuard<'_, WakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A driver can use a marker, or (when it has no free slot) cannot.
    pub(crate) fn set_idle(&self, task: usize, idle: bool) {
        let mut state = self.state();
        if !idle {
            state.idle.remove(&task);
        } else if state.idle.insert(task) && !state.armed.contains(&task) {
            self.changed.notify_one();
        }
    }

    /// Whether a marker came since the last look.
    pub(crate) fn take_woken(&self, task: usize) -> bool {
        self.state().woken.remove(&task)
    }

    /// The marker that woke the task is for another worker: this one cannot claim for now.
    pub(crate) fn give_back(&self, task: usize) {
        self.state().returned.insert(task);
        self.changed.notify_one();
    }

    /// The tasks whose markers are to be put back: those of a worker that stops are all that no driver took.
    pub(crate) fn take_returned(&self, stopping: bool) -> BTreeSet<usize> {
        let mut state = self.state();
        let mut returned = std::mem::take(&mut state.returned);
        if stopping {
            returned.append(&mut state.woken);
        }
        returned
    }

    /// Wakes the task if it is still idle.
    pub(crate) fn wake(&self, task: usize) -> bool {
        let mut state = self.state();
        let was_idle = state.idle.remove(&task);
        if was_idle {
            state.woken.insert(task);
        }
        was_idle
    }

    /// The tasks to block for from now on.
    pub(crate) fn arm(&self) -> Vec<usize> {
        let mut state = self.state();
        state.armed = state.idle.clone();
        state.armed.iter().copied().collect()
    }

    pub(crate) fn disarm(&self) {
        self.state().armed.clear();
    }
}
