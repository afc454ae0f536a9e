//! What was decided about a stalled job, and the event that tells of it. The decision is made in `lua/sweep.lua`, by `decide` in
//! `lua/lib/resolve.lua`.

use std::time::SystemTime;

use serde::Serialize;

use crate::job::id::JobId;
use crate::names::names;
use crate::times::ms_since_1970;
use crate::worker_id::WorkerId;

/// What became of a job that was found stalled.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallAction {
    /// Its payload was gone: what was left of the job is removed.
    Dropped,
    /// The hook of its task had stalled too often: it ended without, with its stored outcome, `Completed`; `Failed` and `Cancelled` say the same
    /// of others.
    Completed,
    /// It ended as failed: it stalled more often than `max_count` allows, had no attempt left, or its task lets such jobs fail (code
    /// `worker_crashed`, see [`OnCrash`](crate::OnCrash)); or what Redis holds of it is damaged (code `corrupt`).
    Failed,
    /// Its cancel had been asked for.
    Cancelled,
    /// Back at the front of its list, to run again.
    Recovered,
    /// The crash counts as a failed run, and the job waits for its next one ([`OnCrash::Retry`](crate::OnCrash::Retry)).
    Retrying,
    /// It was claimed ahead and had not begun: back at the front of its list, with no stall counted. Or its handler had ended, and the hook of its task
    /// runs again.
    Requeued,
}

names!(StallAction, "action", {
    Dropped = "dropped",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Recovered = "recovered",
    Retrying = "retrying",
    Requeued = "requeued",
});

impl StallAction {
    /// Whether its handler runs no more. The hook of its task may have to run before the job has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            StallAction::Dropped | StallAction::Completed | StallAction::Failed | StallAction::Cancelled => true,
            StallAction::Recovered | StallAction::Retrying | StallAction::Requeued => false,
        }
    }
}

/// How it was found out that the job stalled.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallReason {
    /// Its worker was silent for a whole watched interval (heartbeat mode `Automatic`).
    Silent,
    /// Its handler did not beat for a whole watched interval (heartbeat mode `Manual`); its worker may be fine.
    HandlerSilent,
    /// Its worker was known to be dead: its process was gone from this host, as another worker there has seen.
    WorkerRestarted,
    /// Another worker took the exclusive name of its worker, which was asked to stop and still held the job when its grace was over. The
    /// action is `Requeued`: no stall is counted.
    Replaced,
    /// A person decided about it: it was silent for a whole watched interval, or its worker was said to be dead.
    Manual,
    /// Of a [`Recovery`](crate::Recovery) only: the job was claimed ahead and had not begun when its worker was found silent or dead.
    Requeued,
}

names!(StallReason, "reason", {
    Silent = "silent",
    HandlerSilent = "handler_silent",
    WorkerRestarted = "worker_restarted",
    Replaced = "replaced",
    Manual = "manual",
    Requeued = "requeued",
});

/// One job that was found stalled, and what was decided about it.
///
/// When the event arrives, the state in Redis has already changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StalledEvent {
    /// The task.
    pub task: String,
    /// The job.
    pub id: JobId,
    /// How often the job has stalled, this time included where the action counts a stall.
    pub stalled_count: u32,
    /// What became of the job.
    pub action: StallAction,
    /// The worker that held the job; `None` when nobody did.
    pub worker: Option<WorkerId>,
    /// How the stall was found out.
    pub reason: StallReason,
    /// When it was decided, to the millisecond and by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

impl StalledEvent {
    /// Whether its handler runs no more. The hook of its task may have to run before the job has ended.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        self.action.is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_read_back_from_their_names() {
        for action in StallAction::ALL {
            assert_eq!(action.to_string().parse::<StallAction>().unwrap(), action);
        }
        let fault = "Failed".parse::<StallAction>().unwrap_err().to_string();
        assert!(fault.contains("dropped, completed, failed"), "{fault}");
    }

    #[test]
    fn reasons_read_back_from_their_names() {
        for reason in StallReason::ALL {
            assert_eq!(reason.to_string().parse::<StallReason>().unwrap(), reason);
        }
        assert!("".parse::<StallReason>().is_err());
    }

    #[test]
    fn a_job_that_runs_again_is_not_terminal() {
        for action in StallAction::ALL {
            let runs_again = matches!(action, StallAction::Recovered | StallAction::Retrying | StallAction::Requeued);
            assert_eq!(action.is_terminal(), !runs_again, "{action}");
        }
    }
}
