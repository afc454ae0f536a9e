//! The id of a job.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::faults::{self, ConfigError, ConfigErrors};
use crate::shown::Shown;

// No space, since events list ids with spaces between; no braces, so that an id is never taken for a hash tag.
const fn is_allowed(b: u8) -> bool {
    b.is_ascii_graphic() && !matches!(b, b'{' | b'}')
}

/// What the id of the job of a node of a workflow begins with.
pub(crate) const MARK: char = '~';

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

    /// Takes the id of any job that there may be: one that a caller chose, see [`Dispatch::id`](crate::Dispatch::id), or that of a node of a workflow, which begins
    /// with `~`.
    ///
    /// # Errors
    /// [`ConfigErrors`] when the text is not 1 to 128 bytes of printable ASCII without space and braces, or, behind a `~`, up to 350 of them.
    pub fn parse(text: &str) -> Result<JobId, ConfigErrors> {
        if text.starts_with(MARK) {
            let rule = "must be 1 to 350 bytes of printable ASCII without space, '{' and '}'";
            faults::text("id", text, 350, is_allowed, rule, "take it as it is shown")?;
            return Ok(JobId(text.into()));
        }
        let rule = "must be 1 to 128 bytes of printable ASCII without space, '{' and '}'";
        faults::text("id", text, 128, is_allowed, rule, "use an id like \"export-7\", or a hash of the longer key")?;
        Ok(JobId(text.into()))
    }

    /// Takes a caller's own text as the id of a job that is to be dispatched.
    ///
    /// # Errors
    /// As [`parse`](JobId::parse), and for the ids of nodes of workflows.
    pub(crate) fn chosen(text: &str) -> Result<JobId, ConfigErrors> {
        if text.starts_with(MARK) {
            let fix = "begin it with a letter or a digit";
            return Err(
                ConfigError::new("id", text, "must not begin with '~', as the ids of workflows' jobs do", fix).into()
            );
        }
        JobId::parse(text)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
