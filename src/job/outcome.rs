//! The outcome of a job, as its hook receives it.

use serde::Serialize;

use super::failure::Failure;
use super::state::JobState;

/// How a job ended. The hook of its task receives it; see [`TaskRef::on_complete`](crate::TaskRef::on_complete).
///
/// ```
/// # use heartline::Outcome;
/// fn line(outcome: &Outcome<u64>) -> String {
///     match outcome {
///         Outcome::Completed(rows) => format!("{rows} rows"),
///         Outcome::Failed(failure) => failure.to_string(),
///         Outcome::Cancelled { reason } => format!("cancelled: {reason}"),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<O> {
    /// The handler returned this value.
    Completed(O),
    /// It failed.
    Failed(Failure),
    /// It was cancelled.
    Cancelled {
        /// The reason that was given with the cancellation.
        reason: String,
    },
}

impl<O> Outcome<O> {
    /// The state of the job after its hook has run.
    #[must_use]
    pub const fn state(&self) -> JobState {
        match self {
            Outcome::Completed(_) => JobState::Completed,
            Outcome::Failed(_) => JobState::Failed,
            Outcome::Cancelled { .. } => JobState::Cancelled,
        }
    }
}

/// The stored outcome of a job whose hook has yet to run, as the Inspector shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoredOutcome {
    /// The state of the job after its hook has run.
    pub state: JobState,
    /// How many runs of the hook have failed.
    pub failed_hooks: u32,
    /// How often a worker died, or was silent, while it ran the hook.
    pub stalled_hooks: u32,
    /// The size of the payload in bytes; 0 if the column does not have it.
    #[serde(skip)]
    pub(crate) payload_bytes: usize,
}

impl StoredOutcome {
    /// Reads the column; `None` if it is empty.
    pub(crate) fn from_wire(text: &str) -> Option<StoredOutcome> {
        let mut words = text.split(' ');
        let state = words.next()?.parse().ok().filter(|state: &JobState| state.is_terminal());
        let mut count = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (failed_hooks, stalled_hooks) = (count(), count());
        // The word between them is how long the handler ran.
        let payload_bytes = words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        (!text.is_empty()).then_some(StoredOutcome {
            // The scripts also read an invalid state as failed.
            state: state.unwrap_or(JobState::Failed),
            failed_hooks,
            stalled_hooks,
            payload_bytes,
        })
    }
}
