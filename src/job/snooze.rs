//! How often a job was postponed.

use std::fmt;

/// How often a job was postponed without using an attempt. In Redis: the two counts with a colon between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snoozes {
    /// By [`JobError::snooze`](crate::JobError::snooze).
    pub(crate) snoozed: u32,
    /// Because its payload could not be read.
    pub(crate) undecodable: u32,
}

impl Snoozes {
    /// Reads the column; a malformed text counts as zero.
    pub(crate) fn from_wire(text: &str) -> Snoozes {
        let (snoozed, undecodable) = text.split_once(':').unwrap_or_default();
        Snoozes { snoozed: snoozed.parse().unwrap_or(0), undecodable: undecodable.parse().unwrap_or(0) }
    }
}

impl fmt::Display for Snoozes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.snoozed, self.undecodable)
    }
}
