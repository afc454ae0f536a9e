//! A handler with its types erased.

use std::pin::Pin;
use std::sync::Arc;

use super::context::Context;
use crate::error::chain::no_number;
use crate::error::job_error::JobError;
use crate::job::outcome::Outcome;

/// A handler with its types erased: payload in, JSON out (`None` for null).
pub(crate) type Handler = Arc<dyn Fn(Context, Vec<u8>) -> RunFuture + Send + Sync>;

/// A run of a handler, or of a hook, which has no value.
pub(crate) type RunFuture = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, RunError>> + Send>>;

/// A hook with its types erased: how the job ended, with a value as JSON (empty for null).
pub(crate) type Hook = Arc<dyn Fn(Context, Outcome<Vec<u8>>) -> RunFuture + Send + Sync>;

/// Why a run did not return a value.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The handler returned this error.
    Handler(JobError),
    /// The handler cannot decode the payload: a code, and why.
    Undecodable(&'static str, String),
    /// The value cannot be stored as JSON.
    Codec(String),
}

/// What is wrong with JSON that a handler cannot decode, and where. Contains none of its text: errors are stored, and
/// more people see them than payloads.
pub(crate) fn shape_fault(e: &serde_json::Error) -> String {
    let place = if e.line() > 0 { format!(" at line {} column {}", e.line(), e.column()) } else { String::new() };
    let text = e.to_string();
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let quoting = ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let fault = if let Some(kind) = quoting.into_iter().find(|kind| text.starts_with(kind)) {
        // Cut the quoted value, which comes before the expected type.
        let expected = text.rsplit_once(", expected ").map(|(_, expected)| format!("{kind}, expected {expected}"));
        expected.unwrap_or_else(|| kind.to_owned()) + no_number(e)
    } else if !e.is_data() || text.starts_with("missing field `") || text.starts_with("duplicate field `") {
        text.to_owned()
    } else {
        "the data does not match the type of the input".to_owned()
    };
    fault + &place
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn a_fault_shows_the_expected_type_and_place_but_no_value() {
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
        let numbers = shape_fault(&serde_json::from_str::<Vec<f64>>("[0.5,null]").unwrap_err());
        let found = "invalid type, expected f64 (JSON writes null for NaN and infinity) at line 1 column 9";
        assert_eq!(numbers, found);
        assert_eq!(fault(r#"{"number":"#), "EOF while parsing a value at line 1 column 10");
        let _ = Kind::Debit;
        let fault = shape_fault(&serde_json::from_str::<Kind>(r#""secret""#).unwrap_err());
        assert_eq!(fault, "unknown variant, expected `Debit` at line 1 column 8");
        let custom = <serde_json::Error as serde::de::Error>::custom("no secret");
        assert_eq!(shape_fault(&custom), "the data does not match the type of the input");
    }
}
