//! The states of a job, and every change between them.
//!
//! No state is stored: the collection that holds the id determines it. Lua scripts, events and `docs/job-lifecycle.md` must agree with the
//! table here.

use serde::Serialize;

use crate::enum_str::names;

/// The state of a job.
///
/// A job is in exactly one state at any time. [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the lower-case name of
/// the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// In the list of its priority, ready to run.
    ///
    /// The next worker with a free slot claims it. A cancel ends it.
    Waiting,
    /// Scheduled for later, or waiting for its next attempt.
    ///
    /// The first worker that claims after its due time makes it waiting. A cancel ends it.
    Delayed,
    /// Locked by a worker that claimed it ahead ([`TaskOptions::prefetch`](crate::TaskOptions::prefetch)); its handler has not begun.
    ///
    /// Its worker starts it, or hands it back. If the worker is silent, the sweep returns it to the front of its list,
    /// with no stall counted.
    Claimed,
    /// Locked by a worker whose handler is running. With [`TaskOptions::prefetch`](crate::TaskOptions::prefetch), the
    /// handler may be about to run there.
    ///
    /// Its worker reports the outcome. If the worker is silent, the sweep decides. After that, the handler may still
    /// run for a moment: execution is at least once.
    Running,
    /// Its outcome is stored. The hook of its task ([`TaskRef::on_complete`](crate::TaskRef::on_complete)) runs next, or is running in a
    /// worker that holds the job.
    ///
    /// After the hook, the job ends with the stored outcome. The handler does not run again, and a cancel comes too late.
    Finalizing,
    /// Terminal: its handler returned a value.
    ///
    /// Retention removes it.
    Completed,
    /// Terminal: its attempts are used up, the error was fatal, or its workers died too often.
    ///
    /// Retention removes it. It runs again only if a person retries it.
    Failed,
    /// Terminal: it was cancelled before it ended otherwise.
    ///
    /// Retention removes it. It runs again only if a person retries it.
    Cancelled,
}

names!(JobState, "state", {
    Waiting = "waiting",
    Delayed = "delayed",
    Claimed = "claimed",
    Running = "running",
    Finalizing = "finalizing",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
});

impl JobState {
    /// Whether a worker certainly holds the job: claimed or running. A finalizing job may be held too.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self, JobState::Claimed | JobState::Running)
    }

    /// Whether the job has ended: completed, failed or cancelled.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, JobState::Completed | JobState::Failed | JobState::Cancelled)
    }
}

/// One allowed change of state.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    /// The state before; `None` for a job that does not exist yet.
    pub(crate) from: Option<JobState>,
    /// The state after; `None` for a job that is removed.
    pub(crate) to: Option<JobState>,
    /// The script that does it.
    pub(crate) by: &'static str,
}

#[cfg(test)]
const fn change(from: JobState, to: JobState, by: &'static str) -> Transition {
    Transition { from: Some(from), to: Some(to), by }
}

#[cfg(test)]
const fn created(to: JobState, by: &'static str) -> Transition {
    Transition { from: None, to: Some(to), by }
}

#[cfg(test)]
const fn removed(from: JobState, by: &'static str) -> Transition {
    Transition { from: Some(from), to: None, by }
}

/// Every change of state; any other is a bug.
///
/// A cancel of a running job changes no state: it leaves a request that settle and sweep follow. Under
/// `Retention::remove_at_once()` one call makes a job terminal and removes it; this table shows two steps.
#[cfg(test)]
pub(crate) const TRANSITIONS: &[Transition] = &[
    created(JobState::Waiting, "dispatch"),
    created(JobState::Delayed, "dispatch"),
    created(JobState::Waiting, "dispatch_unique"),
    created(JobState::Delayed, "dispatch_unique"),
    // A later dispatch with the same unique key replaces it.
    change(JobState::Claimed, JobState::Cancelled, "dispatch_unique"),
    change(JobState::Claimed, JobState::Finalizing, "dispatch_unique"),
    change(JobState::Delayed, JobState::Waiting, "settle"),
    change(JobState::Waiting, JobState::Running, "settle"),
    // Claimed ahead, then begun. A job that was started ahead and has not run may become claimed again.
    change(JobState::Waiting, JobState::Claimed, "settle"),
    change(JobState::Claimed, JobState::Running, "settle"),
    change(JobState::Running, JobState::Claimed, "settle"),
    // Handed back: its worker stops, or the task is paused.
    change(JobState::Claimed, JobState::Waiting, "settle"),
    change(JobState::Claimed, JobState::Cancelled, "settle"),
    // It expired before it began.
    change(JobState::Claimed, JobState::Failed, "settle"),
    change(JobState::Claimed, JobState::Waiting, "sweep"),
    change(JobState::Claimed, JobState::Failed, "sweep"),
    change(JobState::Claimed, JobState::Cancelled, "sweep"),
    removed(JobState::Claimed, "sweep"),
    // A counter that is not a number: the job cannot run and must not stop others.
    change(JobState::Waiting, JobState::Failed, "settle"),
    // The task has a hook, which runs between the outcome and the end.
    change(JobState::Running, JobState::Finalizing, "settle"),
    change(JobState::Running, JobState::Finalizing, "sweep"),
    change(JobState::Claimed, JobState::Finalizing, "settle"),
    change(JobState::Claimed, JobState::Finalizing, "sweep"),
    change(JobState::Waiting, JobState::Finalizing, "settle"),
    change(JobState::Waiting, JobState::Finalizing, "cancel"),
    change(JobState::Delayed, JobState::Finalizing, "cancel"),
    change(JobState::Waiting, JobState::Finalizing, "expire"),
    change(JobState::Delayed, JobState::Finalizing, "expire"),
    change(JobState::Finalizing, JobState::Completed, "settle"),
    change(JobState::Finalizing, JobState::Failed, "settle"),
    change(JobState::Finalizing, JobState::Cancelled, "settle"),
    change(JobState::Finalizing, JobState::Completed, "sweep"),
    change(JobState::Finalizing, JobState::Failed, "sweep"),
    change(JobState::Finalizing, JobState::Cancelled, "sweep"),
    removed(JobState::Finalizing, "sweep"),
    removed(JobState::Finalizing, "remove"),
    change(JobState::Running, JobState::Completed, "settle"),
    change(JobState::Running, JobState::Failed, "settle"),
    change(JobState::Running, JobState::Cancelled, "settle"),
    // A failed run with attempts left, or a snooze, which uses none.
    change(JobState::Running, JobState::Delayed, "settle"),
    // Requeued at shutdown, with no stall counted.
    change(JobState::Running, JobState::Waiting, "settle"),
    change(JobState::Running, JobState::Waiting, "sweep"),
    change(JobState::Running, JobState::Failed, "sweep"),
    change(JobState::Running, JobState::Cancelled, "sweep"),
    change(JobState::Running, JobState::Delayed, "sweep"),
    // No worker began it in time.
    change(JobState::Waiting, JobState::Failed, "expire"),
    change(JobState::Delayed, JobState::Failed, "expire"),
    change(JobState::Waiting, JobState::Cancelled, "cancel"),
    change(JobState::Delayed, JobState::Cancelled, "cancel"),
    // A person asks for it.
    change(JobState::Failed, JobState::Waiting, "retry"),
    change(JobState::Cancelled, JobState::Waiting, "retry"),
    change(JobState::Delayed, JobState::Waiting, "run_now"),
    removed(JobState::Waiting, "remove"),
    removed(JobState::Delayed, "remove"),
    removed(JobState::Completed, "remove"),
    removed(JobState::Failed, "remove"),
    removed(JobState::Cancelled, "remove"),
    // The payload was deleted by hand, so the job no longer exists.
    removed(JobState::Waiting, "settle"),
    removed(JobState::Running, "sweep"),
    removed(JobState::Completed, "trim"),
    removed(JobState::Failed, "trim"),
    removed(JobState::Cancelled, "trim"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back_from_its_name() {
        for state in JobState::ALL {
            assert_eq!(state.as_str().parse::<JobState>().unwrap(), state);
            assert_eq!(state.to_string(), state.as_str());
        }
        assert!("Waiting".parse::<JobState>().is_err());
    }

    #[test]
    fn a_transition_is_listed_once() {
        for (i, one) in TRANSITIONS.iter().enumerate() {
            assert!(!TRANSITIONS[i + 1..].contains(one), "{one:?}");
        }
    }

    #[test]
    fn terminal_states_only_leave_by_trim_or_by_a_person() {
        for one in TRANSITIONS {
            if one.from.is_some_and(JobState::is_terminal) {
                let asked = [(None, "trim"), (None, "remove"), (Some(JobState::Waiting), "retry")];
                assert!(asked.contains(&(one.to, one.by)), "{one:?}");
            }
            assert!(one.from.is_some() || one.to.is_some());
        }
    }

    #[test]
    fn every_state_that_can_be_entered_can_be_left() {
        for one in TRANSITIONS {
            if let Some(to) = one.to {
                assert!(TRANSITIONS.iter().any(|next| next.from == Some(to)), "{to}");
            }
        }
    }
}
