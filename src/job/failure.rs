//! How a job failed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::JobId;
use crate::codec::CodecError;
use crate::escape::{Escaped, cut};
use crate::limits::MESSAGE_LIMIT;

/// A failed job, and why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The job.
    pub id: JobId,
    /// A stable code: one of [`codes`], or the handler's own (`[a-z0-9_]{1,64}`).
    pub code: String,
    /// The error and its causes, outermost first, at most 4 KiB.
    pub message: String,
    /// How many runs of the handler failed; 0 if a workflow reports the failure, since it does not know the number.
    pub failed_attempts: u32,
    /// How often the job stalled. Stalls do not count as attempts.
    pub stalled_count: u32,
}

impl Failure {
    /// Combines a stored error with the counters of its job.
    pub(crate) fn new(id: JobId, error: StoredError, failed_attempts: u32, stalled_count: u32) -> Failure {
        Failure { id, code: error.code, message: error.message, failed_attempts, stalled_count }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} failed ({}): {}", self.id, Escaped(&self.code), Escaped(&self.message))
    }
}

impl std::error::Error for Failure {}

impl CodecError {
    /// The code of a job that fails because of it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CodecError::Unknown { .. } => codes::CODEC_UNKNOWN,
            CodecError::Failed { .. } => codes::CODEC,
        }
    }
}

/// The failure codes that Heartline itself gives.
///
/// A handler's own codes come from [`JobError::with_code`](crate::JobError::with_code) and are never one of these.
pub mod codes {
    /// The handler returned an error without a code.
    pub const HANDLER_ERROR: &str = "handler_error";
    /// The handler panicked.
    pub const PANIC: &str = "panic";
    /// The run took longer than the task's timeout.
    pub const TIMEOUT: &str = "timeout";
    /// The payload is not a valid input of the handler, or the handler's value cannot be encoded.
    pub const CODEC: &str = "codec";
    /// The payload was encoded by a [`PayloadCodec`](crate::PayloadCodec) that the workers do not have. Add the codec, and retry the job.
    pub const CODEC_UNKNOWN: &str = "codec_unknown";
    /// The handler asked for data that its worker does not have.
    pub const MISSING_STATE: &str = "missing_state";
    /// The server closes the connection each time it sends the payload, for example because its output buffer is too small.
    pub const PAYLOAD_UNREADABLE: &str = "payload_unreadable";
    /// The data of the job in Redis is damaged.
    pub const CORRUPT: &str = "corrupt";
    /// The job stalled more often than `max_count` allows: its workers died, or its handler hung in heartbeat mode `Manual`.
    pub const WORKER_CRASHED: &str = "worker_crashed";

    /// No worker began the job before it expired ([`Dispatch::expires_after`](crate::Dispatch::expires_after)).
    pub const EXPIRED: &str = "expired";
    /// The job, the node of a workflow, or the workflow was cancelled.
    pub const CANCELLED: &str = "cancelled";
    /// A dispatch with the same unique key replaced the job before it began ([`Unique::replace`](crate::Unique::replace)).
    pub const REPLACED: &str = "replaced";

    /// The job of a node completed, but its value was removed before the workflow read it.
    pub const RESULT_NOT_AVAILABLE: &str = "result_not_available";
    /// The node of a workflow did not run.
    pub const SKIPPED: &str = "skipped";
    /// The node of a workflow has not ended yet.
    pub const NOT_ENDED: &str = "not_ended";

    /// Whether a handler may give this code.
    pub(crate) fn is_own(code: &str) -> bool {
        is_well_formed(code) && !is_reserved(code)
    }

    /// Whether Heartline itself uses this code, so that a handler must not.
    pub(crate) fn is_reserved(code: &str) -> bool {
        let of_runs = [HANDLER_ERROR, PANIC, TIMEOUT, CODEC, CODEC_UNKNOWN, MISSING_STATE, PAYLOAD_UNREADABLE, CORRUPT];
        let of_jobs = [WORKER_CRASHED, EXPIRED, CANCELLED, REPLACED];
        let of_nodes = [RESULT_NOT_AVAILABLE, SKIPPED, NOT_ENDED];
        of_runs.contains(&code) || of_jobs.contains(&code) || of_nodes.contains(&code)
    }

    /// Whether the code has the form of a handler's own code: `[a-z0-9_]{1,64}`.
    pub(crate) fn is_well_formed(code: &str) -> bool {
        (1..=64).contains(&code.len())
            && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    }
}

/// The `error` column of a job: `{"code":…,"message":…}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct StoredError {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl StoredError {
    /// The same error, with the earlier failure of a node in its message.
    pub(crate) fn after(self, node: &str, earlier: &StoredError) -> StoredError {
        let StoredError { code, message } = earlier;
        let message = format!("{}; before that its node {node} failed ({code}): {message}", self.message);
        StoredError { code: self.code, message }
    }

    /// The text of the column. The message is cut to 4 KiB.
    pub(crate) fn to_json(&self) -> String {
        serde_json::json!({ "code": self.code, "message": cut(&self.message, MESSAGE_LIMIT) }).to_string()
    }

    /// Reads the column. Malformed text becomes the message of a `corrupt` failure, so that the reader still sees it.
    pub(crate) fn from_json(raw: &str) -> StoredError {
        serde_json::from_str(raw)
            .unwrap_or_else(|_| StoredError { code: codes::CORRUPT.to_owned(), message: raw.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_when_it_is_stored() {
        let stored = StoredError { code: "codec".into(), message: "é".repeat(5_000) }.to_json();
        assert_eq!(StoredError::from_json(&stored).message.len(), MESSAGE_LIMIT);
    }

    #[test]
    fn a_stored_error_reads_back() {
        let error = StoredError { code: codes::TIMEOUT.into(), message: "took \"too\" long\n".into() };
        assert_eq!(StoredError::from_json(&error.to_json()), error);
        assert_eq!(StoredError { code: "a".into(), message: "b".into() }.to_json(), r#"{"code":"a","message":"b"}"#);
    }

    #[test]
    fn a_damaged_error_column_is_shown_unchanged() {
        for raw in ["", "{", "[]", r#"{"code":1}"#] {
            let error = StoredError::from_json(raw);
            assert_eq!((error.code.as_str(), error.message.as_str()), ("corrupt", raw));
        }
    }

    #[test]
    fn a_failure_displays_what_happened() {
        let stored = StoredError { code: "panic".into(), message: "boom".into() };
        let failure = Failure::new(JobId::parse("a").unwrap(), stored, 1, 0);
        assert_eq!(failure.to_string(), "job a failed (panic): boom");
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }
}
