//! The progress of a job.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Reads the stored form; malformed text becomes a string value.
    pub(crate) fn from_json(json: &str, at_ms_since_1970: u64) -> JobProgress {
        let none_of_ours = |_| SaidProgress { value: Value::String(json.to_owned()), message: String::new() };
        let SaidProgress { value, message } = serde_json::from_str(json).unwrap_or_else(none_of_ours);
        JobProgress { value, message, at: at_ms(at_ms_since_1970) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_and_unknown_json_is_a_text() {
        let read = |json| {
            let JobProgress { value, message, .. } = JobProgress::from_json(json, 5);
            (value, message)
        };
        assert_eq!(read(r#"{"value":40,"message":"pages"}"#), (40.into(), "pages".into()));
        assert_eq!(read(r#"{"value":null}"#), (Value::Null, String::new()));
        assert_eq!(read("soon"), ("soon".into(), String::new()));
    }
}
