//! The progress of a job.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::codec::Codecs;
use crate::unix_time::{at_ms, ms_since_1970};

/// The progress that a handler reported with [`Context::progress`](crate::Context::progress).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobProgress {
    /// A percentage, or any value that the handler reported.
    pub value: Value,
    /// The message that came with it; may be empty.
    pub message: String,
    /// When it was written, to the millisecond and by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

/// The stored form.
#[derive(Deserialize)]
struct SaidProgress {
    value: Value,
    #[serde(default)]
    message: String,
}

impl JobProgress {
    /// Reads the stored form. Malformed text becomes a string value, and so does what cannot be decoded.
    pub(crate) fn read(stored: &[u8], codecs: &Codecs, at_ms_since_1970: u64) -> JobProgress {
        let json = codecs.decode(stored).ok();
        let said = json.and_then(|json| serde_json::from_slice(&json).ok());
        let none_of_ours = || SaidProgress { value: codecs.shown(stored), message: String::new() };
        let SaidProgress { value, message } = said.unwrap_or_else(none_of_ours);
        JobProgress { value, message, at: at_ms(at_ms_since_1970) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_and_unknown_json_is_a_text() {
        let read = |stored: &str| {
            let JobProgress { value, message, .. } = JobProgress::read(stored.as_bytes(), &Codecs::default(), 5);
            (value, message)
        };
        assert_eq!(read(r#"{"value":40,"message":"pages"}"#), (40.into(), "pages".into()));
        assert_eq!(read(r#"{"value":null}"#), (Value::Null, String::new()));
        assert_eq!(read("soon"), ("soon".into(), String::new()));
        assert_eq!(read("\u{2}a soon"), ("encoded by `a`, 7 bytes".into(), String::new()));
    }
}
