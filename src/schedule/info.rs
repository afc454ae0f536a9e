//! What is known about a schedule, for people and tools.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::policy::{Overlap, ScheduleSource, TickOutcome};
use super::rule::Schedule;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::unix_time::{as_ms, as_ms_where_known, ms_since_1970, ms_since_1970_where_known};

/// A schedule of a task: its rule, its counts and its last ticks, at one moment of the server.
///
/// The counts add up to all ticks since `since`: fired, overlapped, missed and paused. Jobs that a person created are
/// counted apart, in `by_hand`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Its name.
    pub name: String,
    /// Its rule as text: `30 2 * * * Europe/Berlin`, `every 30s`.
    pub rule: String,
    /// Its rule; `None` if this version cannot read it.
    #[serde(skip)]
    pub schedule: Option<Schedule>,
    /// Who wrote the rule: the code of a worker, or a process at run time.
    pub source: ScheduleSource,
    /// The worker or the person who wrote it.
    pub by: String,
    /// What a tick does while the last job has not ended.
    pub overlap: Overlap,
    /// What happens to missed ticks, as text.
    pub missed: String,
    /// Its next tick; `None` if none follows.
    #[serde(rename = "next_ms", serialize_with = "ms_since_1970_where_known")]
    pub next: Option<SystemTime>,
    /// When that tick will fire: the tick and its jitter.
    #[serde(rename = "next_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub next_at: Option<SystemTime>,
    /// How long that tick is overdue; 0 if it is not.
    #[serde(rename = "late_ms", serialize_with = "as_ms")]
    pub late: Duration,
    /// A live worker whose code has another rule or input. The worker that started last decides.
    pub differing: Option<String>,
    /// Who paused it, and why.
    pub pause: Option<SchedulePause>,
    /// Since when its ticks are counted.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
    /// How many ticks created a job.
    pub fired: u64,
    /// How many ticks created none, because the last job had not ended.
    pub overlapped: u64,
    /// How many ticks no worker fired in time.
    pub missed_ticks: u64,
    /// How many ticks came while it was paused.
    pub paused_ticks: u64,
    /// How many jobs a person created.
    pub by_hand: u64,
    /// Whether more ticks were missed than `missed_ticks` says.
    pub missed_is_lower_bound: bool,
    /// Its last tick that was counted.
    #[serde(rename = "last_ms", serialize_with = "ms_since_1970_where_known")]
    pub last: Option<SystemTime>,
    /// Its last job.
    pub last_job: Option<JobId>,
    /// The state of that job; `None` if it was removed.
    pub last_state: Option<JobState>,
    /// How late that job was created.
    #[serde(rename = "last_late_ms", serialize_with = "as_ms_where_known")]
    pub last_late: Option<Duration>,
    /// The tick that waits for the end of the last job.
    #[serde(rename = "pending_ms", serialize_with = "ms_since_1970_where_known")]
    pub pending: Option<SystemTime>,
    /// The size of the input of its jobs, in bytes.
    pub input_bytes: usize,
    /// Its last ticks, newest first, at most 20 entries.
    pub recent: Vec<RecentTick>,
    /// Why this version cannot read it; `None` if it can.
    pub fault: Option<String>,
}

/// A pause of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SchedulePause {
    /// When it was paused, by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who paused it.
    pub by: String,
    /// The reason that was given; may be empty.
    pub reason: String,
}

/// A tick that was counted, or several missed ones in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecentTick {
    /// Its time; the newest of several.
    #[serde(rename = "due_ms", serialize_with = "ms_since_1970")]
    pub due: SystemTime,
    /// How it was counted.
    pub outcome: TickOutcome,
    /// How many ticks this entry covers.
    pub count: u64,
}
