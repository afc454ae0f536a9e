//! Keys of jobs: where they are in the input, and the limits of each key.

use std::fmt::Write as _;

use serde_json::Value;

use super::rate::{Limits, Rate};
use crate::config_error::{ConfigError, ConfigErrors, Faults, shown};

/// The longest key, in bytes.
const LONGEST_KEY: usize = 128;

/// How many fields of an input an error names.
const NAMED_FIELDS: usize = 10;

/// The limits of each key of a task, over all workers, see [`TaskOptions::per_key`](crate::TaskOptions::per_key); or of one key, see
/// [`Lanes::set`](crate::Lanes::set).
///
/// ```
/// # use std::time::Duration;
/// # use heartline::{Limit, Rate, TaskOptions};
/// let options = TaskOptions::new()
///     .key("/customer")
///     .per_key(Limit::new().running(2).rate(Rate::new(60, Duration::from_secs(60))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "pass it to TaskOptions::per_key or Lanes::set"]
pub struct Limit {
    running: Option<u32>,
    rate: Option<Rate>,
}

impl Limit {
    /// No limit.
    pub const fn new() -> Limit {
        Limit { running: None, rate: None }
    }

    /// How many jobs of a key run at a time. 1 to 1,000,000. Defaults to no limit.
    pub const fn running(self, jobs: u32) -> Self {
        Limit { running: Some(jobs), ..self }
    }

    /// How many jobs of a key may start within a window. Defaults to no rate.
    pub const fn rate(self, rate: Rate) -> Self {
        Limit { rate: Some(rate), ..self }
    }

    fn limits(self) -> Limits {
        Limits { max_running: self.running, rate: self.rate }
    }

    /// Its limits, if they are valid.
    pub(crate) fn checked(self) -> Result<Limits, ConfigErrors> {
        let mut faults = Faults::default();
        self.limits().check_numbers("running", &mut faults);
        faults.finish().map(|()| self.limits())
    }
}

/// How the jobs of a task are keyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// The JSON pointer to the key in the input.
    pub(crate) pointer: Option<&'static str>,
    /// Of each key.
    pub(crate) limits: Limits,
}

impl Keyed {
    pub(super) fn new(pointer: Option<&'static str>, limit: Option<Limit>) -> Keyed {
        Keyed { pointer, limits: limit.unwrap_or_default().limits() }
    }

    pub(super) fn any(self) -> bool {
        self.pointer.is_some() || self.limits.any()
    }

    pub(super) fn check(self, faults: &mut Faults) {
        if let Some(pointer) = self.pointer.filter(|pointer| !is_pointer(pointer)) {
            let rule = "must be a JSON pointer of 2 to 256 printable characters, such as \"/customer\"";
            faults.push(ConfigError::new(
                "key",
                pointer,
                rule,
                "write '/' before each field, as in \"/order/customer\"",
            ));
        }
        self.limits.check_numbers("per_key.running", faults);
    }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && (2..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Checks a key that a caller sets.
pub(crate) fn check_key(key: &str) -> Result<(), ConfigErrors> {
    let is_valid = (1..=LONGEST_KEY).contains(&key.len()) && !key.chars().any(char::is_control);
    let rule = "must be 1 to 128 bytes without control characters";
    is_valid.then_some(()).ok_or_else(|| ConfigError::new("key", shown(key), rule, "use an id or a hash").into())
}

/// The key in an encoded input: the text, boolean or whole number at the pointer. Larger numbers are not the same everywhere.
pub(crate) fn key_of(payload: &[u8], pointer: &str) -> Result<String, ConfigErrors> {
    let input: Value = serde_json::from_slice(payload).unwrap_or_default();
    let key = match input.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(number)) if number.as_i64().is_some_and(|n| n.unsigned_abs() < 1 << 53) => {
            number.to_string()
        }
        _ => {
            let rule = "must lead to a text, a boolean or a whole number below 2^53 in the input";
            return Err(ConfigError::new("key", pointer, rule, has_fields(&input)).into());
        }
    };
    check_key(&key).map(|()| key)
}

/// What the error says about an input without the key.
fn has_fields(input: &Value) -> String {
    let Value::Object(fields) = input else {
        return "the input is not an object: set the key by Dispatch::key".to_owned();
    };
    let mut said = "the input has".to_owned();
    for (at, name) in fields.keys().take(NAMED_FIELDS).enumerate() {
        let _ = write!(said, "{} {name:?}", if at > 0 { "," } else { "" });
    }
    said + if fields.is_empty() { " no fields" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_the_input() {
        let key = |pointer| key_of(br#"{"customer":"acme","order":{"id":7,"paid":true},"tags":["a"]}"#, pointer);
        assert_eq!((key("/customer").unwrap(), key("/order/id").unwrap()), ("acme".to_owned(), "7".to_owned()));
        assert_eq!((key("/order/paid").unwrap(), key("/tags/0").unwrap()), ("true".to_owned(), "a".to_owned()));
        let missing = key("/client").unwrap_err().to_string();
        assert!(missing.contains("/client") && missing.contains(r#""customer", "order", "tags""#), "{missing}");
        assert!(key("/order").is_err());
        let plain = key_of(b"7", "/customer").unwrap_err().to_string();
        assert!(plain.contains("Dispatch::key"), "{plain}");
        for number in ["9007199254740992", "0.5", "1.0"] {
            let input = format!(r#"{{"n":{number}}}"#);
            assert!(key_of(input.as_bytes(), "/n").is_err(), "{number}");
        }
        assert!(key_of(br#"{"customer":""}"#, "/customer").is_err());
        assert!(key_of(br#"{"customer":"a\u0000b"}"#, "/customer").is_err());
    }

    #[test]
    fn pointers_and_keys_are_checked() {
        for (pointer, is_valid) in [("/a", true), ("/a/b~1c", true), ("a", false), ("/", false), ("/a b", false)] {
            assert_eq!(is_pointer(pointer), is_valid, "{pointer}");
        }
        assert!(check_key("acme, inc.").is_ok() && check_key("").is_err() && check_key("a\nb").is_err());
        assert!(check_key(&"é".repeat(64)).is_ok() && check_key(&"é".repeat(65)).is_err());
    }
}
