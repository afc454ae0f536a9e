//! The events of jobs.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::enum_str::names;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::stall::action::StalledEvent;
use crate::unix_time::{as_ms, as_ms_where_known, as_us, as_us_where_known, ms_since_1970};
use crate::worker_id::WorkerId;

/// One transition of one job.
///
/// ```no_run
/// # use heartline::{App, Event};
/// # async fn run(app: App) {
/// let mut events = app.events();
/// while let Ok(event) = events.recv().await {
///     match &event {
///         Event::Failed { code, message, .. } => println!("{} failed ({code}): {message}", event.id()),
///         _ => println!("{} {}", event.name(), event.id()),
///     }
/// }
/// # }
/// ```
///
/// When an event arrives, the state in Redis has already changed, and may have changed again since.
///
/// A transition is one event. A stall that ends a job emits two: `Stalled`, then `Failed`, `Cancelled` or `Removed`. So
/// every job that failed has a `Failed` event, whatever decided it.
///
/// Every App receives all events of a task, from any process. To count runs once, in the process that runs them, use an
/// [`Observer`](crate::Observer). As JSON, an event is an object whose field `event` has its name (`completed`). Times
/// are ms since 1970, and durations ms, except for how long a handler ran (`ran_us`).
///
/// | event | name | when |
/// |---|---|---|
/// | `Dispatched` | `task:dispatched` | the job was written; it waits, or is delayed |
/// | `Claimed` | `task:claimed` | a worker claimed it ahead; it has not begun |
/// | `Started` | `task:started` | a worker claimed it and runs it, or begins a job that it had claimed ahead |
/// | `Progress` | `task:progress` | its handler reported progress |
/// | `Completed` | `task:completed` | the handler returned a value |
/// | `Failed` | `task:failed` | a run failed and no other follows, or the job stalled too often |
/// | `Retrying` | `task:retrying` | a run failed, another one follows after the delay |
/// | `Finalizing` | `task:finalizing` | its outcome is stored, and the hook of its task runs before it ends |
/// | `HookRetrying` | `task:hook_retrying` | its hook failed; it runs again after the delay |
/// | `HookFailed` | `task:hook_failed` | its hook failed, or its workers died, too often: the job ends without it |
/// | `Snoozed` | `task:snoozed` | the handler postponed the job, which does not count as a failure |
/// | `Undecodable` | `task:undecodable` | its worker's handler cannot decode the payload; the job is postponed |
/// | `Stalled` | `task:stalled` | its worker was silent; the event says what happened to the job |
/// | `Cancelled` | `task:cancelled` | it was cancelled while it waited or ran, or when it had stalled |
/// | `Requeued` | `task:requeued` | its worker returned it unfinished, or a person requeued it because it was in no list or set; no attempt is counted |
/// | `ManuallyRetried` | `task:manually_retried` | a person put it back into its list after it had failed or was cancelled |
/// | `Promoted` | `task:promoted` | a person moved it to the front of its list before it was due |
/// | `OutcomeRejected` | `task:outcome_rejected` | a worker reported an outcome too late: it no longer held the job |
/// | `Removed` | `task:removed` | retention or a person removed it, or it had no payload when it was claimed or had stalled |
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The job was written; it waits, or is delayed.
    #[non_exhaustive]
    Dispatched {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
    /// A worker claimed the job ahead ([`TaskOptions::prefetch`](crate::TaskOptions::prefetch)), or reverted its begin:
    /// its handler has not begun.
    #[non_exhaustive]
    Claimed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker claimed the job and runs it, or begins a job that it had claimed ahead.
    #[non_exhaustive]
    Started {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The attempt of this run, from 1. A run that stalled does not count.
        attempt: u32,
        /// How often the job stalled before.
        stalled_count: u32,
        /// How long the job waited since it could first be claimed, to the millisecond: from the call of dispatch, less
        /// its delay. It includes the transfer to Redis and the time before a requeue. A difference between the clocks
        /// of producer and Redis server distorts it; it is never below 0. `None` if the job failed, stalled or was
        /// postponed before, or the time of its dispatch is unknown.
        #[serde(rename = "waited_ms", serialize_with = "as_ms_where_known")]
        waited: Option<Duration>,
        /// The worker.
        worker: WorkerId,
    },
    /// The handler reported progress with [`Context::progress`](crate::Context::progress).
    #[non_exhaustive]
    Progress {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// A percentage, or any other value that the handler reported.
        value: serde_json::Value,
        /// The handler's message; may be empty.
        message: String,
        /// The worker.
        worker: WorkerId,
    },
    /// The handler returned a value.
    #[non_exhaustive]
    Completed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How long the handler ran, to the microsecond, as its worker measured it.
        #[serde(rename = "ran_us", serialize_with = "as_us")]
        ran: Duration,
        /// The worker that ran it.
        worker: WorkerId,
    },
    /// A run failed and no other follows, or the job stalled too often: it ended as failed.
    #[non_exhaustive]
    Failed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The failure code.
        code: String,
        /// The first 160 bytes of the error.
        message: String,
        /// How long the last run took, to the microsecond; `None` if no run ended: the job had stalled, or was corrupt.
        #[serde(rename = "ran_us", serialize_with = "as_us_where_known")]
        ran: Option<Duration>,
        /// The worker that reported it, or found it stalled.
        worker: WorkerId,
    },
    /// A run failed and another one follows.
    #[non_exhaustive]
    Retrying {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How many runs have failed so far.
        failed_attempts: u32,
        /// How long until the next one.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
        /// The failure code.
        code: String,
        /// The first 160 bytes of the error.
        message: String,
        /// How long the run took, to the microsecond; `None` if its worker died ([`OnCrash::Retry`](crate::OnCrash::Retry)).
        #[serde(rename = "ran_us", serialize_with = "as_us_where_known")]
        ran: Option<Duration>,
        /// The worker that reported it.
        worker: WorkerId,
    },
    /// The outcome of the job is stored, and the hook of its task
    /// ([`TaskRef::on_complete`](crate::TaskRef::on_complete)) runs next. The event of the end follows after the hook.
    #[non_exhaustive]
    Finalizing {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How the job will end: completed, failed or cancelled.
        outcome: JobState,
        /// The worker that stored it; empty if a person or a producer did.
        worker: WorkerId,
    },
    /// The hook failed, and runs again.
    #[non_exhaustive]
    HookRetrying {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How many runs of the hook have failed so far.
        failed_attempts: u32,
        /// How long until the next one.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
        /// The failure code.
        code: String,
        /// The first 160 bytes of the error.
        message: String,
        /// The worker that ran it.
        worker: WorkerId,
    },
    /// The hook failed and will not run again: its attempts are used up, or its workers died too often. The job ends
    /// with its stored outcome.
    #[non_exhaustive]
    HookFailed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The failure code.
        code: String,
        /// The first 160 bytes of the error.
        message: String,
        /// The worker that reported it, or found it stalled.
        worker: WorkerId,
    },
    /// The handler postponed the job. No attempt is counted.
    #[non_exhaustive]
    Snoozed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How often the job was snoozed so far.
        snoozed_count: u32,
        /// How long until the next run.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
    },
    /// Its worker's handler cannot decode the payload. The job was postponed, since a later version of the worker may
    /// decode it. No attempt is counted.
    #[non_exhaustive]
    Undecodable {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// How often this happened so far.
        undecodable_count: u32,
        /// How long until the next try.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
    },
    /// The job was found stalled.
    Stalled(StalledEvent),
    /// The job was cancelled.
    #[non_exhaustive]
    Cancelled {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// The worker returned the job unfinished, or a person requeued a job that was in no list or set.
    #[non_exhaustive]
    Requeued {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The name of the person or tool that requested it; `None` if the worker did it.
        by: Option<String>,
    },
    /// A failed or cancelled job was put back into its list, to run as if for the first time.
    #[non_exhaustive]
    ManuallyRetried {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// A delayed job was moved to the front of its list before it was due.
    #[non_exhaustive]
    Promoted {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// A worker reported the outcome of a job that it no longer held. Nothing was recorded.
    #[non_exhaustive]
    OutcomeRejected {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The fence under which the worker had held the job.
        fence: u64,
        /// What it reported.
        outcome: RejectedOutcome,
        /// The worker.
        worker: WorkerId,
    },
    /// The job was removed.
    #[non_exhaustive]
    Removed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
        /// Whether it was removed because its payload was missing: deleted, or lost by the server. There was nothing to run.
        lost_payload: bool,
    },
}

impl Event {
    /// The task of the job.
    #[must_use]
    pub fn task(&self) -> &str {
        match self {
            Event::Dispatched { task, .. }
            | Event::Claimed { task, .. }
            | Event::Started { task, .. }
            | Event::Progress { task, .. }
            | Event::Completed { task, .. }
            | Event::Failed { task, .. }
            | Event::Retrying { task, .. }
            | Event::Finalizing { task, .. }
            | Event::HookRetrying { task, .. }
            | Event::HookFailed { task, .. }
            | Event::Snoozed { task, .. }
            | Event::Undecodable { task, .. }
            | Event::Cancelled { task, .. }
            | Event::Requeued { task, .. }
            | Event::ManuallyRetried { task, .. }
            | Event::Promoted { task, .. }
            | Event::OutcomeRejected { task, .. }
            | Event::Removed { task, .. } => task,
            Event::Stalled(stalled) => &stalled.task,
        }
    }

    /// The job.
    #[must_use]
    pub fn id(&self) -> &JobId {
        match self {
            Event::Dispatched { id, .. }
            | Event::Claimed { id, .. }
            | Event::Started { id, .. }
            | Event::Progress { id, .. }
            | Event::Completed { id, .. }
            | Event::Failed { id, .. }
            | Event::Retrying { id, .. }
            | Event::Finalizing { id, .. }
            | Event::HookRetrying { id, .. }
            | Event::HookFailed { id, .. }
            | Event::Snoozed { id, .. }
            | Event::Undecodable { id, .. }
            | Event::Cancelled { id, .. }
            | Event::Requeued { id, .. }
            | Event::ManuallyRetried { id, .. }
            | Event::Promoted { id, .. }
            | Event::OutcomeRejected { id, .. }
            | Event::Removed { id, .. } => id,
            Event::Stalled(stalled) => &stalled.id,
        }
    }

    /// The name of the event: `task:completed`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Dispatched { .. } => "task:dispatched",
            Event::Claimed { .. } => "task:claimed",
            Event::Started { .. } => "task:started",
            Event::Progress { .. } => "task:progress",
            Event::Completed { .. } => "task:completed",
            Event::Failed { .. } => "task:failed",
            Event::Retrying { .. } => "task:retrying",
            Event::Finalizing { .. } => "task:finalizing",
            Event::HookRetrying { .. } => "task:hook_retrying",
            Event::HookFailed { .. } => "task:hook_failed",
            Event::Snoozed { .. } => "task:snoozed",
            Event::Undecodable { .. } => "task:undecodable",
            Event::Stalled(_) => "task:stalled",
            Event::Cancelled { .. } => "task:cancelled",
            Event::Requeued { .. } => "task:requeued",
            Event::ManuallyRetried { .. } => "task:manually_retried",
            Event::Promoted { .. } => "task:promoted",
            Event::OutcomeRejected { .. } => "task:outcome_rejected",
            Event::Removed { .. } => "task:removed",
        }
    }

    /// When it happened, to the millisecond and by the clock of the Redis server.
    #[must_use]
    pub const fn at(&self) -> SystemTime {
        match self {
            Event::Dispatched { at, .. }
            | Event::Claimed { at, .. }
            | Event::Started { at, .. }
            | Event::Progress { at, .. }
            | Event::Completed { at, .. }
            | Event::Failed { at, .. }
            | Event::Retrying { at, .. }
            | Event::Finalizing { at, .. }
            | Event::HookRetrying { at, .. }
            | Event::HookFailed { at, .. }
            | Event::Snoozed { at, .. }
            | Event::Undecodable { at, .. }
            | Event::Cancelled { at, .. }
            | Event::Requeued { at, .. }
            | Event::ManuallyRetried { at, .. }
            | Event::Promoted { at, .. }
            | Event::OutcomeRejected { at, .. }
            | Event::Removed { at, .. } => *at,
            Event::Stalled(stalled) => stalled.at,
        }
    }

    /// Whether the job ended with this event: completed, failed or cancelled.
    ///
    /// `Stalled` is not terminal: if a stall ends the job, a terminal event follows. `Removed` is not terminal either;
    /// it usually comes long after a terminal event.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        match self {
            Event::Completed { .. } | Event::Failed { .. } | Event::Cancelled { .. } => true,
            Event::Dispatched { .. }
            | Event::Claimed { .. }
            | Event::Started { .. }
            | Event::Progress { .. }
            | Event::Retrying { .. }
            | Event::Finalizing { .. }
            | Event::HookRetrying { .. }
            | Event::HookFailed { .. }
            | Event::Snoozed { .. }
            | Event::Undecodable { .. }
            | Event::Stalled(_)
            | Event::Requeued { .. }
            | Event::ManuallyRetried { .. }
            | Event::Promoted { .. }
            | Event::OutcomeRejected { .. }
            | Event::Removed { .. } => false,
        }
    }
}

/// What a worker reported about a job that it no longer held.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RejectedOutcome {
    /// Its handler had returned a value.
    Completed,
    /// Its handler had failed, and no other run would follow.
    Failed,
    /// Its handler had failed, and another run would follow.
    Retry,
    /// The worker wanted to requeue the job unfinished.
    Requeue,
    /// Its handler had postponed the job.
    Snooze,
    /// Its handler could not decode the payload.
    Undecodable,
    /// Its hook had run.
    Hooked,
    /// Its hook had failed, and would run again.
    HookRetry,
    /// Its workflow no longer wanted it, and its handler had not begun.
    Drop,
}

names!(RejectedOutcome, "outcome", {
    Completed = "completed",
    Failed = "failed",
    Retry = "retry",
    Requeue = "requeue",
    Snooze = "snooze",
    Undecodable = "undecodable",
    Hooked = "hooked",
    HookRetry = "hook_retry",
    Drop = "drop",
});
