//! A job as it was when it was read.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::backend::jobs::Inspected;
use crate::job::failure::{Failure, StoredError};
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::options::overrides::Overrides;

/// One job as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// How many of its runs have failed.
    pub failed_attempts: u32,
    /// How often it stalled. Stalls do not count as attempts.
    pub stalled_count: u32,
    /// How often its handler snoozed it, with [`JobError::snooze`](crate::JobError::snooze).
    pub snoozed_count: u32,
    /// Its last failure, even while it waits for its next attempt. `None` if it completed. A cancelled job has the code `cancelled`,
    /// and the reason as message.
    pub error: Option<Failure>,
    /// The headers that its dispatch set, such as the tenant whose job it is. They are not part of its JSON.
    #[serde(skip)]
    pub headers: BTreeMap<String, String>,
}

impl Job {
    /// From its stored form.
    pub(super) fn new(id: JobId, inspected: &Inspected) -> Job {
        let stored = &inspected.job;
        let (failed_attempts, stalled_count) = (stored.failed_attempts, stored.stalled_count);
        // If the job completed, the failure of an earlier run is not an error of the job.
        let error = (!stored.error.is_empty() && stored.state != JobState::Completed)
            .then(|| Failure::new(id.clone(), StoredError::from_json(&stored.error), failed_attempts, stalled_count));
        let overrides: Overrides = serde_json::from_str(&inspected.overrides).unwrap_or_default();
        Job {
            id,
            state: stored.state,
            failed_attempts,
            stalled_count,
            snoozed_count: stored.snoozes.snoozed,
            error,
            headers: overrides.headers,
        }
    }
}
