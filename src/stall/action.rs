//! What was decided about a stalled job, and the event that reports it. The decision is made in `lua/sweep.lua`, by `decide` in
//! `lua/lib/resolve.lua`.

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use crate::enum_str::names;
use crate::job::id::JobId;
use crate::unix_time::ms_since_1970;
use crate::worker_id::WorkerId;

/// What was done with a stalled job.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallAction {
    /// Its payload was missing: the rest of the job was removed.
    Dropped,
    /// The hook of its task stalled too often. The job ended without it, with its stored outcome `Completed`. With
    /// another stored outcome the action is `Failed` or `Cancelled`.
    Completed,
    /// It failed. Code `worker_crashed`: it stalled more often than `max_count` allows, had no attempt left, or its task fails
    /// such jobs (see [`OnCrash`](crate::OnCrash)). Code `corrupt`: its data in Redis is damaged.
    Failed,
    /// Its cancellation was pending.
    Cancelled,
    /// It returned to the front of its list, to run again.
    Recovered,
    /// The stall counts as a failed run, and the job waits for its next one ([`OnCrash::Retry`](crate::OnCrash::Retry)).
    Retrying,
    /// It returned to the front of its list, with no stall counted: it was claimed ahead and had not begun, or it began early
    /// and its handler may not have run. Or its handler had ended, and the hook of its task runs again.
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
    /// Whether its handler will not run again. The hook of its task may still have to run before the job ends.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            StallAction::Dropped | StallAction::Completed | StallAction::Failed | StallAction::Cancelled => true,
            StallAction::Recovered | StallAction::Retrying | StallAction::Requeued => false,
        }
    }
}

/// How a stall was detected.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallReason {
    /// Its worker was silent for a whole watched interval (heartbeat mode `Automatic`).
    Silent,
    /// No `ctx.heartbeat()` came for a whole watched interval (heartbeat mode `Manual`): its handler hangs, or its process is dead,
    /// frozen or cut off from Redis.
    HandlerSilent,
    /// Its worker was dead: another worker on the same host found that its process no longer exists.
    WorkerRestarted,
    /// Another worker took the exclusive name of its worker. That worker was asked to stop, and still held the job after its grace. The
    /// action is `Requeued`: no stall is counted.
    Replaced,
    /// A person decided: the job was silent for a whole watched interval, or the person declared its worker dead.
    Manual,
    /// Only in a [`Recovery`](crate::Recovery): the job was claimed ahead and had not begun when its worker was found silent or dead.
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

/// A job that was found stalled, and what was decided about it.
///
/// When the event arrives, the state in Redis has already changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StalledEvent {
    /// The task.
    pub task: String,
    /// The job.
    pub id: JobId,
    /// How often the job has stalled, including this time if the action counts a stall.
    pub stalled_count: u32,
    /// What was done with the job.
    pub action: StallAction,
    /// The worker that held the job; `None` if no worker did.
    pub worker: Option<WorkerId>,
    /// How the stall was detected.
    pub reason: StallReason,
    /// When it was decided, to the millisecond, by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

/// As in a log: `job 4GxW… of export stalled: requeued, reason silent, worker web-1-7-0a1b2c3d, stall 1`.
impl fmt::Display for StalledEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StalledEvent { task, id, stalled_count, action, worker, reason, .. } = self;
        write!(f, "job {id} of {task} stalled: {action}, reason {reason}, ")?;
        match worker {
            Some(worker) => write!(f, "worker {worker}, ")?,
            None => f.write_str("no worker, ")?,
        }
        write!(f, "stall {stalled_count}")
    }
}

impl StalledEvent {
    /// Whether its handler will not run again. The hook of its task may still have to run before the job ends.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        self.action.is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_one_sentence() {
        let stall = StalledEvent {
            task: "export".to_owned(),
            id: JobId::from_wire("a"),
            stalled_count: 2,
            action: StallAction::Failed,
            worker: None,
            reason: StallReason::Silent,
            at: SystemTime::UNIX_EPOCH,
        };
        assert_eq!(stall.to_string(), "job a of export stalled: failed, reason silent, no worker, stall 2");
    }

    #[test]
    fn actions_read_back_from_their_names() {
        for action in StallAction::ALL {
            assert_eq!(action.to_string().parse::<StallAction>().unwrap(), action);
        }
        let fault = "Failed".parse::<StallAction>().unwrap_err().to_string();
        assert!(fault.contains("dropped, completed, failed"), "{fault}");
    }
}
