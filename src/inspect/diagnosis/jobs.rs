//! Conditions of one job.

use std::fmt;

use serde::Serialize;

use super::super::text::many;
use crate::worker_id::WorkerId;

/// What is wrong with one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum JobCondition {
    /// It ended as `outcome` says, and its place is lost.
    JobPlaceLost { outcome: &'static str },
    /// It counts as waiting, and is in no list.
    JobInNoList,
    /// It counts as waiting, and is one of this many jobs of which some are in no list.
    JobMayBeInNoList { jobs: u64 },
    /// It got no heartbeat since the last snapshot, although its worker lives.
    JobSilent { worker: WorkerId },
}

impl fmt::Display for JobCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobPlaceLost { outcome } => write!(f, "it has {outcome}, and its place is lost: it does not wait"),
            Self::JobInNoList => f.write_str("it is in no list, so no worker finds it"),
            Self::JobMayBeInNoList { jobs } => {
                write!(f, "{} of its task in no list, and it may be one of them", many(*jobs, "job"))
            }
            Self::JobSilent { worker } => {
                write!(f, "it got no heartbeat since the last snapshot, although {worker} updates its presence")
            }
        }
    }
}

impl JobCondition {
    pub(super) fn hint(&self, task: &str) -> String {
        match self {
            Self::JobPlaceLost { .. } => format!("`heartline repair -t {task}` restores its place"),
            Self::JobInNoList | Self::JobMayBeInNoList { .. } => format!(
                "`heartline audit -t {task}` finds jobs in no list, and `heartline repair -t {task}` lets them run (AGAIN, if they had ended)"
            ),
            Self::JobSilent { .. } => format!("`heartline stalls outlook -t {task}` says what comes next"),
        }
    }
}
