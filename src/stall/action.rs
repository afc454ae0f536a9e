//! What was decided about a stalled job, and the event that tells of it.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use crate::error::{ConfigError, ConfigErrors, Error};
use crate::job::JobId;

/// What became of a job that was found stalled.
///
/// [`Display`](fmt::Display) and [`FromStr`] use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallAction {
    /// Its payload was gone: what was left of the job is removed.
    Dropped,
    /// It ended as failed: it stalled more often than `max_count` allows (code `worker_crashed`), or what Redis holds
    /// of it is damaged (code `corrupt`).
    Failed,
    /// Back at the front of its list with no stall counted, or to have only its follow-up repeated. No version writes
    /// this yet.
    Requeued,
    /// Its outcome was stored already; it went to its terminal place without its follow-up. No version writes this yet.
    Completed,
    /// Its cancel had been asked for.
    Cancelled,
    /// Back at the front of its list, to run again.
    Recovered,
    /// Counted as a failed attempt; the next one follows after the backoff. No version writes this yet.
    Retrying,
}

impl StallAction {
    /// Every action, in the order of the resolve table.
    pub(crate) const ALL: [StallAction; 7] = [
        StallAction::Dropped,
        StallAction::Failed,
        StallAction::Requeued,
        StallAction::Completed,
        StallAction::Cancelled,
        StallAction::Recovered,
        StallAction::Retrying,
    ];

    /// The name of the action as the event has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StallAction::Dropped => "dropped",
            StallAction::Failed => "failed",
            StallAction::Requeued => "requeued",
            StallAction::Completed => "completed",
            StallAction::Cancelled => "cancelled",
            StallAction::Recovered => "recovered",
            StallAction::Retrying => "retrying",
        }
    }

    /// Whether the job ended with it and runs no more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            StallAction::Dropped | StallAction::Failed | StallAction::Completed | StallAction::Cancelled => true,
            StallAction::Requeued | StallAction::Recovered | StallAction::Retrying => false,
        }
    }
}

impl fmt::Display for StallAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StallAction {
    type Err = Error;

    /// Reads the name that [`StallAction::as_str`] gives.
    ///
    /// # Errors
    /// [`Error::Config`] for any other text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        StallAction::ALL
            .into_iter()
            .find(|action| action.as_str() == text)
            .ok_or_else(|| unknown("action", text, &StallAction::ALL.map(StallAction::as_str)))
    }
}

/// How it was found out that the job stalled.
///
/// [`Display`](fmt::Display) and [`FromStr`] use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallReason {
    /// Its worker was silent for a whole watched interval (heartbeat mode `Automatic`).
    Silent,
    /// Its handler did not beat for a whole watched interval (heartbeat mode `Manual`); its worker may be fine.
    HandlerSilent,
    /// Its worker is proven dead, since another one was started in its place. No version writes this yet.
    WorkerRestarted,
    /// An operator ordered it. No version writes this yet.
    Manual,
}

impl StallReason {
    /// Every reason.
    pub(crate) const ALL: [StallReason; 4] =
        [StallReason::Silent, StallReason::HandlerSilent, StallReason::WorkerRestarted, StallReason::Manual];

    /// The name of the reason as the event has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StallReason::Silent => "silent",
            StallReason::HandlerSilent => "handler_silent",
            StallReason::WorkerRestarted => "worker_restarted",
            StallReason::Manual => "manual",
        }
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StallReason {
    type Err = Error;

    /// Reads the name that [`StallReason::as_str`] gives.
    ///
    /// # Errors
    /// [`Error::Config`] for any other text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        StallReason::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| unknown("reason", text, &StallReason::ALL.map(StallReason::as_str)))
    }
}

fn unknown(field: &str, text: &str, names: &[&str]) -> Error {
    let rule = "must be a name that this version knows";
    let fix = format!("use one of {}", names.join(", "));
    ConfigErrors::from(ConfigError::new(field, format!("{text:?}"), rule, fix)).into()
}

/// One job that was found stalled, and what was decided about it.
///
/// When the event arrives, the state in Redis has already changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StalledEvent {
    /// The task.
    pub task: String,
    /// The job.
    pub id: JobId,
    /// How often the job has stalled, this time included where the action counts a stall.
    pub count: u64,
    /// What became of the job.
    pub action: StallAction,
    /// The worker that held the job; `None` when nobody did.
    pub worker: Option<String>,
    /// How the stall was found out.
    pub reason: StallReason,
    /// When it was decided, to the millisecond and by the clock of the Redis server.
    pub at: SystemTime,
}

impl StalledEvent {
    /// Whether the job ended with it and runs no more.
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
        assert!(fault.contains("dropped, failed, requeued"), "{fault}");
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
        let going_on = [StallAction::Requeued, StallAction::Recovered, StallAction::Retrying];
        for action in StallAction::ALL {
            assert_eq!(action.is_terminal(), !going_on.contains(&action), "{action}");
        }
    }
}
