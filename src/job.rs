//! The id of a job, and how a job failed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::error::Error;
use crate::options::validate;
use crate::shown::{Shown, cut};

/// Longest message that is stored with a job that failed, in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 4096;

/// Length of an id that we make: the digits that the largest UUID needs in base62.
const GENERATED_LEN: usize = 22;

/// The id of a job, unique within its task.
///
/// Either made by the client (22 characters whose order follows the time of dispatch) or chosen by the caller:
/// 1 to 128 bytes of printable ASCII without space and braces. Cloning is cheap. It is a plain string in serde.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

impl JobId {
    /// Makes a new id.
    ///
    /// The digits of base62 are in the order of ASCII and the width is fixed, so that text order is the order
    /// of the UUIDs, which is the order of time.
    pub(crate) fn generate() -> JobId {
        let digits = base62::encode_fmt(Uuid::now_v7().as_u128());
        JobId(format!("{digits:0>GENERATED_LEN$}").into())
    }

    /// Takes a caller's own text as an id.
    ///
    /// # Errors
    /// [`Error::Config`] when the text is not 1 to 128 bytes of printable ASCII without space and braces.
    pub fn parse(text: &str) -> Result<JobId, Error> {
        validate::job_id(text)?;
        Ok(JobId(text.into()))
    }

    /// Takes an id as Redis holds it; it was checked when it was written.
    pub(crate) fn from_wire(text: impl Into<Arc<str>>) -> JobId {
        JobId(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When the id was made, to the millisecond and by the clock of the process that made it; `None` for an
    /// id that a caller chose.
    pub(crate) fn created_at(&self) -> Option<SystemTime> {
        if self.0.len() != GENERATED_LEN {
            return None;
        }
        let uuid = Uuid::from_u128(base62::decode(self.0.as_bytes()).ok()?);
        if uuid.get_version_num() != 7 || uuid.get_variant() != uuid::Variant::RFC4122 {
            return None;
        }
        let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One that was read from Redis may hold anything.
        if self.0.bytes().all(|b| b.is_ascii_graphic()) { f.pad(&self.0) } else { Shown(&self.0).fmt(f) }
    }
}

impl AsRef<str> for JobId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> String {
        id.0.to_string()
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        JobId::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// How a job ended as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The job.
    pub id: JobId,
    /// A stable code: one of [`codes`], or the handler's own (`[a-z0-9_]{1,64}`).
    pub code: String,
    /// The error with its causes, outermost first, at most 4 KiB.
    pub message: String,
    /// How many runs of the handler ended in failure.
    pub failed_attempts: u32,
    /// How often the job stalled; stalls are never counted as attempts.
    pub stalled_count: u32,
}

impl Failure {
    /// Puts a stored error together with the counters of its job.
    pub(crate) fn new(id: JobId, error: StoredError, failed_attempts: u32, stalled_count: u32) -> Failure {
        Failure { id, code: error.code, message: error.message, failed_attempts, stalled_count }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} failed ({}): {}", self.id, Shown(&self.code), Shown(&self.message))
    }
}

/// The failure codes that Heartline itself gives.
///
/// A handler's own codes come from [`JobError::with_code`](crate::error::JobError::with_code) and are never one of these.
pub mod codes {
    /// The handler returned an error without a code.
    pub const HANDLER_ERROR: &str = "handler_error";
    /// The handler panicked.
    pub const PANIC: &str = "panic";
    /// The attempt took longer than the task's timeout.
    pub const TIMEOUT: &str = "timeout";
    /// The payload is no input of the handler, or the handler's value cannot be encoded.
    pub const CODEC: &str = "codec";
    /// The handler asked for data that its worker does not have.
    pub const MISSING_DATA: &str = "missing_data";
    /// What Redis holds of the job is damaged.
    pub const CORRUPT: &str = "corrupt";
    /// The job stalled more often than `max_count` allows: workers died with it, or in heartbeat mode `Manual` its handler
    /// hung.
    pub const WORKER_CRASHED: &str = "worker_crashed";

    /// Whether Heartline gives this code itself, so that a handler must not.
    pub(crate) fn is_reserved(code: &str) -> bool {
        [HANDLER_ERROR, PANIC, TIMEOUT, CODEC, MISSING_DATA, CORRUPT, WORKER_CRASHED].contains(&code)
    }
}

/// The `error` column of a job: `{"code":…,"message":…}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct StoredError {
    /// A failure code.
    pub(crate) code: String,
    /// The bounded message.
    pub(crate) message: String,
}

impl StoredError {
    /// The column's text. The message is cut to 4 KiB.
    pub(crate) fn to_json(&self) -> String {
        serde_json::json!({ "code": self.code, "message": cut(&self.message, MESSAGE_LIMIT) }).to_string()
    }

    /// Reads the column; text that is not ours becomes the message of a `corrupt` failure, so that a damaged
    /// column still tells the reader what it holds.
    pub(crate) fn from_json(raw: &str) -> StoredError {
        serde_json::from_str(raw)
            .unwrap_or_else(|_| StoredError { code: codes::CORRUPT.to_owned(), message: raw.to_owned() })
    }
}

/// What is wrong with JSON that is no input of a handler, and where, without any of its text: errors are stored, and shown
/// to more people than payloads are.
pub(crate) fn shape_fault(e: &serde_json::Error) -> String {
    let place = if e.line() > 0 { format!(" at line {} column {}", e.line(), e.column()) } else { String::new() };
    let text = e.to_string();
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let quoting = ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let fault = if let Some(kind) = quoting.into_iter().find(|kind| text.starts_with(kind)) {
        // What is quoted stands before what was expected.
        text.rsplit_once(", expected ").map_or(kind.to_owned(), |(_, expected)| format!("{kind}, expected {expected}"))
    } else if !e.is_data() || text.starts_with("missing field `") || text.starts_with("duplicate field `") {
        text.to_owned()
    } else {
        "the data is not what the handler takes".to_owned()
    };
    fault + &place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fault_says_what_was_expected_and_where_and_quotes_nothing() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Card {
            number: u32,
        }
        #[derive(Debug, Deserialize)]
        enum Kind {
            Debit,
        }
        let fault = |text: &str| shape_fault(&serde_json::from_str::<Card>(text).unwrap_err());
        assert_eq!(fault(r#"{"number":"4111, expected x"}"#), "invalid type, expected u32 at line 1 column 28");
        assert_eq!(fault("{}"), "missing field `number` at line 1 column 2");
        assert_eq!(fault(r#"{"secret":1}"#), "unknown field, expected `number` at line 1 column 9");
        assert_eq!(fault(r#"{"number":"#), "EOF while parsing a value at line 1 column 10");
        let _ = Kind::Debit;
        let fault = shape_fault(&serde_json::from_str::<Kind>(r#""secret""#).unwrap_err());
        assert_eq!(fault, "unknown variant, expected `Debit` at line 1 column 8");
        let custom = <serde_json::Error as serde::de::Error>::custom("no secret");
        assert_eq!(shape_fault(&custom), "the data is not what the handler takes");
    }

    #[test]
    fn a_long_message_is_cut_where_it_is_stored() {
        let stored = StoredError { code: "codec".into(), message: "é".repeat(5_000) }.to_json();
        assert_eq!(StoredError::from_json(&stored).message.len(), MESSAGE_LIMIT);
    }

    #[test]
    fn generated_ids_have_one_width_and_sort_by_time() {
        let ids: Vec<JobId> = (0..10_000).map(|_| JobId::generate()).collect();
        assert!(ids.iter().all(|id| id.as_str().len() == 22));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(JobId::parse(ids[0].as_str()).is_ok());
    }

    #[test]
    fn text_order_is_number_order() {
        proptest!(|(a: u128, b: u128)| {
            let text = |n: u128| format!("{:0>22}", base62::encode_fmt(n));
            prop_assert_eq!(text(a).len(), 22);
            prop_assert_eq!(text(a).cmp(&text(b)), a.cmp(&b));
        });
    }

    #[test]
    fn only_generated_ids_tell_their_time() {
        let before = SystemTime::now() - Duration::from_millis(2);
        let made = JobId::generate().created_at().unwrap();
        assert!(made >= before && made <= SystemTime::now() + Duration::from_secs(1));
        for own in ["export-7", "0000000000000000000000", "zzzzzzzzzzzzzzzzzzzzzz", "----------------------"] {
            assert_eq!(JobId::parse(own).unwrap().created_at(), None, "{own}");
        }
    }

    #[test]
    fn created_at_never_panics() {
        proptest!(|(text in "[0-9A-Za-z]{22}")| {
            let _ = JobId::from_wire(text).created_at();
        });
    }

    #[test]
    fn an_id_is_a_plain_string_in_json() {
        let id = JobId::parse("export-7").unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"export-7\"");
        assert_eq!(serde_json::from_str::<JobId>("\"export-7\"").unwrap(), id);
        assert!(serde_json::from_str::<JobId>("\"a b\"").is_err());
    }

    #[test]
    fn a_stored_error_reads_back() {
        let error = StoredError { code: codes::TIMEOUT.into(), message: "took \"too\" long\n".into() };
        assert_eq!(StoredError::from_json(&error.to_json()), error);
        assert_eq!(StoredError { code: "a".into(), message: "b".into() }.to_json(), r#"{"code":"a","message":"b"}"#);
    }

    #[test]
    fn a_damaged_error_column_is_shown_as_it_is() {
        for raw in ["", "{", "[]", r#"{"code":1}"#] {
            let error = StoredError::from_json(raw);
            assert_eq!((error.code.as_str(), error.message.as_str()), ("corrupt", raw));
        }
    }

    #[test]
    fn a_failure_says_what_happened() {
        let stored = StoredError { code: "panic".into(), message: "boom".into() };
        let failure = Failure::new(JobId::parse("a").unwrap(), stored, 1, 0);
        assert_eq!(failure.to_string(), "job a failed (panic): boom");
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }
}
