//! What an audit found.

use std::fmt;

use serde::Serialize;

use crate::enum_str::names;
use crate::escape::Escaped;

/// An inconsistency in the stored data of a task, and what [`Inspector::repair`](crate::Inspector::repair) does about it.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Inconsistency {
    /// An id without a payload that has neither ended nor runs. The repair removes the rest of it.
    NoPayload,
    /// A job in more than one place. The repair keeps one place: a terminal one, else a running one, else a delayed one.
    TwoPlaces,
    /// A job in no place, which would never run. The repair puts it at the front of its list. If its outcome is stored, its hook runs
    /// next.
    Unplaced,
    /// A job in no place that has ended, according to a stored result or a final failure. The repair puts it into its terminal place, as
    /// if it had ended ten minutes ago. A job that completed without a value, or failed before its last attempt, is
    /// [`Unplaced`](Inconsistency::Unplaced) instead.
    EndedUnplaced,
    /// A job among the running ones without a lock. The repair removes it from them. If it is then in no place, it becomes `Unplaced`.
    Unlocked,
    /// A locked job that no sweep checks. After the repair, the next sweep does.
    Unwatched,
    /// A job that counts both as silent and as alive. After the repair it counts as alive.
    BothSets,
    /// A cancel request for a job that no worker holds. The repair drops the request.
    StrayCancel,
    /// A mark that a job was claimed ahead, although its holder did not set it. The repair drops the mark.
    StrayClaim,
    /// A stored outcome of a job that has ended, or a job that waits for its hook and has no outcome. The repair drops the outcome, or
    /// puts the job at the front of its list.
    StrayHook,
    /// A counter of a job that is not a number. The repair resets it to 0.
    BadCounter,
    /// A wrong count of tombstones, and therefore of waiting jobs. The repair counts them again.
    Miscounted,
    /// A record of settle calls, left by a worker that is gone. The repair removes it.
    StaleRecord,
    /// A counter of the task that is not a whole number below 2^53. The repair resets it to 0, or fences to the server's clock.
    BadMeta,
}

names!(Inconsistency, "fault", {
    NoPayload = "no_payload",
    TwoPlaces = "two_places",
    Unplaced = "unplaced",
    EndedUnplaced = "ended_unplaced",
    Unlocked = "unlocked",
    Unwatched = "unwatched",
    BothSets = "both_sets",
    StrayCancel = "stray_cancel",
    StrayClaim = "stray_claim",
    StrayHook = "stray_hook",
    BadCounter = "bad_counter",
    Miscounted = "miscounted",
    StaleRecord = "stale_record",
    BadMeta = "bad_meta",
});

/// An inconsistency that an audit found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Its kind.
    pub fault: Inconsistency,
    /// The id of the job as stored, or the field of `replies` or `meta`.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault, Escaped(&self.what))
    }
}

/// The result of an audit, by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// The task.
    pub task: String,
    /// Its partitions.
    pub parts: Vec<AuditedPart>,
}

/// The result of an audit of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditedPart {
    /// Which partition, from 0.
    pub part: u32,
    /// How many ids were checked.
    pub looked: u64,
    /// The first 10,000 findings.
    pub findings: Vec<Finding>,
    /// How many findings there are.
    pub found: u64,
}

impl AuditReport {
    /// The findings of all partitions.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.parts.iter().flat_map(|part| &part.findings)
    }

    /// Whether there is no finding.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.parts.iter().all(|part| part.found == 0)
    }
}
