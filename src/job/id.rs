//! The id of a job.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::config_error::{self, ConfigError, ConfigErrors};
use crate::escape::Escaped;

// No space, since events list ids separated by spaces. No braces, since they mark a hash tag.
const fn is_allowed(b: u8) -> bool {
    b.is_ascii_graphic() && !matches!(b, b'{' | b'}')
}

/// The first character of the job id of a workflow node.
pub(crate) const MARK: char = '~';

/// The length of a generated id: the digits of the largest UUID in base62.
const GENERATED_LEN: usize = 22;

/// The id of a job, unique within its task.
///
/// The client generates it (22 characters, in the order of dispatch), or the caller chooses it: 1 to 128 bytes of
/// printable ASCII without space and braces. Cloning is cheap. In serde it is a plain string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

impl JobId {
    /// A new id, as a job gets that is dispatched without one: 22 characters, which sort by time. Choose it before a form is shown or a
    /// request is made that may be sent twice, and pass it to [`Dispatch::id`](crate::Dispatch::id): then there is one job.
    ///
    /// It is a UUID of version 7 in base62, whose digits sort like ASCII.
    #[must_use]
    pub fn generate() -> JobId {
        let digits = base62::encode_fmt(Uuid::now_v7().as_u128());
        JobId(format!("{digits:0>GENERATED_LEN$}").into())
    }

    /// Parses the id of any job: one that a caller chose (see [`Dispatch::id`](crate::Dispatch::id)), or that of a
    /// workflow node, which begins with `~`.
    ///
    /// # Errors
    /// [`ConfigErrors`] if the text is not 1 to 128 bytes of printable ASCII without space and braces. An id that begins with `~` may have
    /// 350.
    pub fn parse(text: &str) -> Result<JobId, ConfigErrors> {
        let (most, rule, fix) = if text.starts_with(MARK) {
            let rule = "must be 1 to 350 bytes of printable ASCII without space, '{' and '}'";
            (350, rule, "copy the id as it is shown")
        } else {
            let rule = "must be 1 to 128 bytes of printable ASCII without space, '{' and '}'";
            (128, rule, "use an id like \"export-7\", or a hash of the longer key")
        };
        config_error::text("id", text, most, is_allowed, rule, fix)?;
        Ok(JobId(text.into()))
    }

    /// Takes a caller's text as the id of a job to dispatch.
    ///
    /// # Errors
    /// As [`parse`](JobId::parse), and for ids of workflow nodes.
    pub(crate) fn chosen(text: &str) -> Result<JobId, ConfigErrors> {
        if text.starts_with(MARK) {
            let rule = "must not begin with '~', which marks the jobs of workflows";
            return Err(ConfigError::new("id", text, rule, "begin it with a letter or a digit").into());
        }
        JobId::parse(text)
    }

    /// Takes an id as Redis holds it. It was checked when it was written.
    pub(crate) fn from_wire(text: impl Into<Arc<str>>) -> JobId {
        JobId(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When the id was generated, to the millisecond, by the clock of that process. `None` for an id that a caller chose.
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
        // An id that was read from Redis may contain anything.
        if self.0.bytes().all(|b| b.is_ascii_graphic()) { f.pad(&self.0) } else { Escaped(&self.0).fmt(f) }
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
    fn only_generated_ids_have_a_creation_time() {
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
