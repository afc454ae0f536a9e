//! How often a job was postponed.

use std::fmt;

/// How often a job was postponed without using an attempt. In Redis: the two counts with a colon between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// By [`JobError::snooze`](crate::JobError::snooze).
    pub(crate) snoozed: u32,
    /// Because its payload could not be read.
    pub(crate) undecodable: u32,
}

impl Deferred {
    /// Reads the column; a malformed text counts as zero.
    pub(crate) fn from_wire(text: &str) -> Deferred {
        let (snoozed, undecodable) = text.split_once(':').unwrap_or_default();
        Deferred { snoozed: snoozed.parse().unwrap_or(0), undecodable: undecodable.parse().unwrap_or(0) }
    }
}

impl fmt::Display for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.snoozed, self.undecodable)
    }
}
