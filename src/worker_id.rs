//! The identity of a worker.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::escape::Escaped;

/// The identity of one running worker: `<hostname>-<pid>-<8 hex>`. Two workers never share one, not even in one process, or in two
/// containers in which both have pid 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// A new identity for a worker of this process.
    pub(crate) fn generate() -> WorkerId {
        let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let random = uuid::Uuid::now_v7().as_u128() as u32;
        WorkerId(format!("{}-{}-{random:08x}", clean(&host), std::process::id()).into())
    }

    /// Takes an identity as Redis holds it.
    pub(crate) fn from_wire(text: &str) -> WorkerId {
        WorkerId(text.into())
    }

    /// The identity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An identity that was read from Redis may contain anything.
        if self.0.bytes().all(|b| b.is_ascii_graphic()) { f.pad(&self.0) } else { Escaped(&self.0).fmt(f) }
    }
}

impl Serialize for WorkerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl AsRef<str> for WorkerId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for WorkerId {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

/// A host name as part of a token: no spaces, colons or unprintable characters, and at most 64 characters.
fn clean(host: &str) -> String {
    let name: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_of_one_process_differ() {
        assert_ne!(WorkerId::generate(), WorkerId::generate());
    }

    #[test]
    fn a_host_name_is_cleaned_for_tokens_and_event_words() {
        assert_eq!(clean("web 1:a{b}"), "web_1_a_b_");
        assert_eq!(clean(""), "host");
        assert_eq!(clean(&"x".repeat(300)).len(), 64);
    }
}
