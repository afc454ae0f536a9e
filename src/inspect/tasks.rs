//! Reports of tasks: their jobs, rates and stall detection.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::audit_report::Inconsistency;
use super::limits::LimitReached;
use crate::error::ServerErrorKind;
use crate::escape::Escaped;
use crate::job::id::JobId;
use crate::stall::cadence;
use crate::task::task_ref::TaskCounts;
use crate::unix_time::{as_ms, as_ms_where_known, at_ms, ms_since_1970, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// A task at the time of the call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its name.
    pub task: String,
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// How many jobs are in each state.
    pub counts: TaskCounts,
    /// The longest wait among the first jobs of the lists and the first due delayed job. Jobs further back may have waited longer, for
    /// example if a recovered job is in front of them. `None` if no job waits or is due.
    #[serde(rename = "next_waiting_age_ms", serialize_with = "as_ms_where_known")]
    pub next_waiting_age: Option<Duration>,
    /// Delayed jobs that are due. A worker moves them to their lists when it claims.
    pub due: u64,
    /// When the first delayed job is due.
    #[serde(rename = "next_due_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub next_due_at: Option<SystemTime>,
    /// Jobs dispatched since the task was created. See [`TaskReport::rates_since`] for the rate.
    pub dispatched: u64,
    /// Jobs that ended since the task was created: completed, failed or cancelled.
    pub ended: u64,
    /// Jobs that failed since the task was created.
    pub failed: u64,
    /// The keys of its waiting jobs. `None` if no job with a key waits.
    pub lanes: Option<LaneCounts>,
    /// Stalls of all jobs since the task was created.
    pub stalled: u64,
    /// When a worker found that the server had lost the data of the task, if it has. Jobs from before are gone, and
    /// outcomes that workers report for them are rejected. `None` if the jobs are still there.
    #[serde(rename = "data_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub data_lost_at: Option<SystemTime>,
    /// When a worker found that the server had lost the options and counters of the task, but not its jobs. A pause is lost, too.
    #[serde(rename = "options_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub options_lost_at: Option<SystemTime>,
    /// Jobs removed since the task was created because their payload was lost.
    pub lost_payloads: u64,
    /// When the last of them was removed.
    #[serde(rename = "payload_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub payload_lost_at: Option<SystemTime>,
    /// Hooks (`on_complete`) that failed for good since the task was created. Their jobs ended without them.
    pub hooks_failed: u64,
    /// Hooks that failed for good, with less than 15 minutes between one failure and the next. 0 if none failed in the last 15 minutes.
    pub hooks_failed_in_a_row: u64,
    /// When the first of those failed.
    #[serde(rename = "hooks_failing_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub hooks_failing_since: Option<SystemTime>,
    /// When the last hook failed for good.
    #[serde(rename = "hook_failed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub hook_failed_at: Option<SystemTime>,
    /// Jobs missing from every list and set, according to the counts. No worker will run them.
    /// [`Inspector::audit`](crate::Inspector::audit) finds them.
    pub unplaced: u64,
    /// Jobs whose payload is lost, according to the counts. If such a job has not ended, the next claim removes it.
    pub without_payload: u64,
    /// Stored jobs that failed in the last 5 minutes.
    pub failed_lately: u64,
    /// When a run last completed.
    #[serde(rename = "last_completed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_completed_at: Option<SystemTime>,
    /// How many jobs, stored or not, began to fail since a run completed or was snoozed. Expired jobs count, and so do jobs that failed
    /// or are retried because their worker died. When a person removes the last failed job, only unfinished jobs remain counted.
    pub failed_since_completed: u64,
    /// When a run last failed.
    #[serde(rename = "last_failed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_failed_at: Option<SystemTime>,
    /// How many runs broke off, because their worker stopped or died, since a run completed or was snoozed.
    pub broken_off_since_completed: u64,
    /// When a run last broke off.
    #[serde(rename = "last_broken_off_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_broken_off_at: Option<SystemTime>,
    /// Stored jobs that completed in the last 5 minutes.
    pub completed_lately: u64,
    /// When a job of it was last claimed.
    #[serde(rename = "last_claimed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_claimed_at: Option<SystemTime>,
    /// The pause, if the task is paused.
    pub paused: Option<TaskPause>,
    /// The last recorded audit, see [`Inspector::note_audit`](crate::Inspector::note_audit).
    pub audited: Option<TaskAudit>,
    /// The options in force.
    pub options: EffectiveOptions,
    /// How many live workers have the task, including stopping ones.
    pub live_workers: u64,
    /// Whether `live_workers` is complete. In a cluster, the node with the list of workers or with a presence may be unreachable.
    pub knows_workers: bool,
    /// How many jobs the live workers may hold together, by the concurrency of the task. A worker's `max_jobs` may allow fewer.
    pub slots: u64,
    /// Whether nodes of workflows use it. People cannot retry or remove the jobs of nodes.
    pub has_workflows: bool,
    /// Its stall detection, one per partition.
    pub parts: Vec<PartitionReport>,
    /// Why it cannot be read, if so. The other fields are then not valid.
    pub fault: Option<String>,
    /// The kind of that error, if the server reported it.
    pub fault_kind: Option<ServerErrorKind>,
    /// The keys of another type that make it unreadable.
    pub foreign: Vec<KeyConflict>,
    /// Whether the fault is an unreachable cluster node. The task itself may be fine.
    pub is_unreachable: bool,
    /// Whether the fault is a missing permission of this process's Redis user. The task itself may be fine.
    pub is_denied: bool,
}

/// The keys of the waiting jobs of a task. [`Lanes::list`](crate::Lanes::list) shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneCounts {
    /// Those that wait for their turn.
    pub ready: u64,
    /// Those that rest.
    pub resting: u64,
    /// Those that are full or paused.
    pub full: u64,
    /// Since when the first of those is full or paused. None of its jobs has ended since then.
    #[serde(rename = "full_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub full_since: Option<SystemTime>,
}

/// The pause of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskPause {
    /// Since when.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// How many of its partitions are paused. Fewer than all if a partition was unreachable when the task was paused or resumed.
    pub partitions: usize,
}

/// The last recorded audit of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskAudit {
    /// When it finished.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// The number of faults by kind. Empty if none was found.
    pub found: BTreeMap<Inconsistency, u64>,
}

/// The options of a task, as declared by the worker that started last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EffectiveOptions {
    /// Names and values as stored: `maxCount`, `heartbeat`, `keepFailed`, … Each worker uses its own `concurrency`, `attempts` and
    /// `timeoutMs`; these are the values of the worker that declared them. Empty if no worker has declared the task.
    pub values: BTreeMap<String, String>,
    /// The worker that declared them.
    pub declared_by: Option<WorkerId>,
    /// When it started.
    #[serde(rename = "declared_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub declared_at: Option<SystemTime>,
}

/// The stall detection of one partition of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Which partition, from 0.
    pub part: u32,
    /// How many snapshots there were.
    pub epoch: u64,
    /// When the current epoch began.
    #[serde(rename = "epoch_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub epoch_at: Option<SystemTime>,
    /// When the candidates were taken.
    #[serde(rename = "snapshot_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub snapshot_at: Option<SystemTime>,
    /// The stall interval in force: the longest that a worker requested.
    #[serde(rename = "interval_ms", serialize_with = "as_ms_where_known")]
    pub interval: Option<Duration>,
    /// The worker that requested it.
    pub asker: Option<WorkerId>,
    /// Held jobs without a heartbeat since the snapshot. Directly after a snapshot these are all held jobs, see
    /// [`PartitionReport::heard_by`].
    pub candidates: u64,
    /// Held jobs with a heartbeat since the snapshot.
    pub heard: u64,
    /// Held jobs that sweeps parked, because their phase waits longer or for a person. A job that was taken from its worker after that
    /// may be counted until a later snapshot.
    pub parked: u64,
    /// How long its next job has waited or has been due.
    #[serde(rename = "next_waiting_age_ms", serialize_with = "as_ms_where_known")]
    pub next_waiting_age: Option<Duration>,
    /// When a job of it was last claimed.
    #[serde(rename = "last_claimed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_claimed_at: Option<SystemTime>,
    /// The limit of the task that keeps its jobs waiting, if one does.
    pub limit: Option<LimitReached>,
}

/// The throughput of a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskRates {
    /// Jobs dispatched per second.
    pub dispatched: f64,
    /// Jobs that ended per second.
    pub ended: f64,
    /// The time between the two reports.
    #[serde(rename = "over_ms", serialize_with = "as_ms")]
    pub over: Duration,
}

impl TaskReport {
    /// The throughput since an earlier report of the task. `None` if no time has passed, or the counters were reset.
    #[must_use]
    pub fn rates_since(&self, earlier: &TaskReport) -> Option<TaskRates> {
        let over = self.as_of.duration_since(earlier.as_of).ok().filter(|over| !over.is_zero())?;
        let a_second = |jobs: u64| jobs as f64 / over.as_secs_f64();
        let dispatched = a_second(self.dispatched.checked_sub(earlier.dispatched)?);
        Some(TaskRates { dispatched, ended: a_second(self.ended.checked_sub(earlier.ended)?), over })
    }
}

impl PartitionReport {
    /// About when every held job of a live worker will have sent a heartbeat since the snapshot. Silence before this time means
    /// nothing. `None` before the first snapshot.
    #[must_use]
    pub fn heard_by(&self) -> Option<SystemTime> {
        let interval = self.interval?;
        let beat = cadence::beat_period(interval) + cadence::longest_beat_pause(interval);
        self.snapshot_at?.checked_add(beat)
    }
}

/// A key that holds a value of another type, which Heartline did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyConflict {
    /// The key.
    pub key: String,
    /// The type of the value, as `TYPE` returns it.
    pub found: String,
    /// The expected type.
    pub expected: &'static str,
    /// Whether the key holds the options and the pause of the task.
    pub holds_options: bool,
}

pub(super) fn foreign_key((key, found, expected, holds_options): (String, String, &'static str, bool)) -> KeyConflict {
    KeyConflict { key, found, expected, holds_options }
}

impl fmt::Display for KeyConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a {} and should be a {}", Escaped(&self.key), self.found, self.expected)
    }
}

/// Since when a job has been in its state: the stored time, or the time in its id.
pub(super) fn in_state_since(id: &JobId, since_ms: Option<u64>) -> Option<SystemTime> {
    since_ms.map(at_ms).or_else(|| id.created_at())
}
