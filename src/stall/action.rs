//! What was decided about a stalled job, and the event that tells of it.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::Serialize;

use crate::faults::{ConfigError, ConfigErrors};
use crate::job::id::JobId;
use crate::times::ms_since_1970;
use crate::worker_id::WorkerId;

/// What became of a job that was found stalled.
///
/// [`Display`](fmt::Display) and [`FromStr`] use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallAction {
    /// Its payload was gone: what was left of the job is removed.
    Dropped,
    /// It ended as failed: it stalled more often than `max_count` allows (code `worker_crashed`), or what Redis holds
    /// of it is damaged (code `corrupt`).
    Failed,
    /// Its cancel had been asked for.
    Cancelled,
    /// Back at the front of its list, to run again.
    Recovered,
}

impl StallAction {
    /// Every action, in the order of the resolve table.
    pub(crate) const ALL: [StallAction; 4] =
        [StallAction::Dropped, StallAction::Failed, StallAction::Cancelled, StallAction::Recovered];

    /// The name of the action as the event has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StallAction::Dropped => "dropped",
            StallAction::Failed => "failed",
            StallAction::Cancelled => "cancelled",
            StallAction::Recovered => "recovered",
        }
    }

    /// Whether the job ended with it and runs no more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            StallAction::Dropped | StallAction::Failed | StallAction::Cancelled => true,
            StallAction::Recovered => false,
        }
    }
}

impl fmt::Display for StallAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StallAction {
    type Err = ConfigErrors;

    /// Reads the name that [`StallAction::as_str`] gives.
    ///
    /// # Errors
    /// [`ConfigErrors`] for any other text.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StallReason {
    /// Its worker was silent for a whole watched interval (heartbeat mode `Automatic`).
    Silent,
    /// Its handler did not beat for a whole watched interval (heartbeat mode `Manual`); its worker may be fine.
    HandlerSilent,
}

impl StallReason {
    /// Every reason.
    pub(crate) const ALL: [StallReason; 2] = [StallReason::Silent, StallReason::HandlerSilent];

    /// The name of the reason as the event has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StallReason::Silent => "silent",
            StallReason::HandlerSilent => "handler_silent",
        }
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StallReason {
    type Err = ConfigErrors;

    /// Reads the name that [`StallReason::as_str`] gives.
    ///
    /// # Errors
    /// [`ConfigErrors`] for any other text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        StallReason::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| unknown("reason", text, &StallReason::ALL.map(StallReason::as_str)))
    }
}

fn unknown(field: &str, text: &str, names: &[&str]) -> ConfigErrors {
    let rule = "must be a name that this version knows";
    let fix = format!("use one of {}", names.join(", "));
    ConfigErrors::from(ConfigError::new(field, format!("{text:?}"), rule, fix))
}

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
        assert!(fault.contains("dropped, failed, cancelled"), "{fault}");
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
            assert_eq!(action.is_terminal(), action != StallAction::Recovered, "{action}");
        }
    }
}
