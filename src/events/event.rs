//! The events of jobs.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::enum_str::names;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::stall::action::StalledEvent;
use crate::unix_time::{as_ms, as_ms_where_known, as_us, as_us_where_known, ms_since_1970};
use crate::worker_id::WorkerId;

/// Declares [`Event`] and what all its variants have: the task, the job, the time and a name.
macro_rules! events {
    ($($(#[$about:meta])* $variant:ident = $name:literal { $($(#[$note:meta])* $field:ident: $type:ty,)* },)+) => {
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
        /// A transition is one event. A stall that ends a job emits two: `Stalled`, then `Failed`, `Cancelled` or
        /// `Removed`. So every job that failed has a `Failed` event, whatever decided it.
        ///
        /// Every App receives all events of a task, from any process. To count runs once, in the process that runs
        /// them, use an [`Observer`](crate::Observer). As JSON, an event is an object whose field `event` has its name
        /// (`completed`). Times are ms since 1970, and durations ms, except for how long a handler ran (`ran_us`).
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "event", rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Event {
            $(
                $(#[$about])*
                #[doc = concat!("\n\nIts name is `", $name, "`.")]
                #[non_exhaustive]
                $variant {
                    /// The task.
                    task: String,
                    /// The job.
                    id: JobId,
                    /// When it happened, to the millisecond and by the clock of the Redis server.
                    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
                    at: SystemTime,
                    $($(#[$note])* $field: $type,)*
                },
            )+
            /// The worker of the job was silent. The event says what happened to the job.
            ///
            /// Its name is `task:stalled`.
            Stalled(StalledEvent),
        }

        impl Event {
            /// The task of the job.
            #[must_use]
            pub fn task(&self) -> &str {
                match self {
                    $(Event::$variant { task, .. } => task,)+
                    Event::Stalled(stalled) => &stalled.task,
                }
            }

            /// The job.
            #[must_use]
            pub fn id(&self) -> &JobId {
                match self {
                    $(Event::$variant { id, .. } => id,)+
                    Event::Stalled(stalled) => &stalled.id,
                }
            }

            /// The name of the event: `task:completed`.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Event::$variant { .. } => $name,)+
                    Event::Stalled(_) => "task:stalled",
                }
            }

            /// When it happened, to the millisecond and by the clock of the Redis server.
            #[must_use]
            pub const fn at(&self) -> SystemTime {
                match self {
                    $(Event::$variant { at, .. } => *at,)+
                    Event::Stalled(stalled) => stalled.at,
                }
            }
        }
    };
}

events! {
    /// The job was written; it waits, or is delayed.
    Dispatched = "task:dispatched" {},
    /// A schedule fired a tick, and wrote the job for it. Its [`Dispatched`](Event::Dispatched) event comes first.
    Scheduled = "task:scheduled" {
        /// The schedule.
        schedule: String,
        /// The time of the tick, as its rule says, without jitter.
        #[serde(rename = "due_ms", serialize_with = "ms_since_1970")]
        due: SystemTime,
        /// How long after its time, jitter included, the tick fired.
        #[serde(rename = "late_ms", serialize_with = "as_ms")]
        late: Duration,
    },
    /// A tick made no job, since the last job of its schedule had not ended, or a newer tick took its place. The id is
    /// the one that its job would have had in a task without partitions.
    Overlapped = "task:overlapped" {
        /// The schedule.
        schedule: String,
        /// The time of the tick.
        #[serde(rename = "due_ms", serialize_with = "ms_since_1970")]
        due: SystemTime,
    },
    /// Ticks made no job, since no worker fired them in time. The id is the one that the job of the newest would have
    /// had in a task without partitions.
    Missed = "task:missed" {
        /// The schedule.
        schedule: String,
        /// The time of the newest of these ticks.
        #[serde(rename = "due_ms", serialize_with = "ms_since_1970")]
        due: SystemTime,
        /// How many ticks.
        count: u64,
    },
    /// A worker claimed the job ahead ([`TaskOptions::prefetch`](crate::TaskOptions::prefetch)), or reverted its begin:
    /// its handler has not begun.
    Claimed = "task:claimed" {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker claimed the job and runs it, or begins a job that it had claimed ahead.
    Started = "task:started" {
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
    Progress = "task:progress" {
        /// A percentage, or any other value that the handler reported.
        value: serde_json::Value,
        /// The handler's message; may be empty.
        message: String,
        /// The worker.
        worker: WorkerId,
    },
    /// The handler returned a value.
    Completed = "task:completed" {
        /// How long the handler ran, to the microsecond, as its worker measured it.
        #[serde(rename = "ran_us", serialize_with = "as_us")]
        ran: Duration,
        /// The worker that ran it. With a hook: the one that ran the hook.
        worker: WorkerId,
    },
    /// A run failed and no other follows, or the job stalled too often: it ended as failed.
    Failed = "task:failed" {
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
    Retrying = "task:retrying" {
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
    Finalizing = "task:finalizing" {
        /// How the job will end: completed, failed or cancelled.
        outcome: JobState,
        /// The worker that stored it; empty if a person or a producer did.
        worker: WorkerId,
    },
    /// The hook failed, and runs again.
    HookRetrying = "task:hook_retrying" {
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
    HookFailed = "task:hook_failed" {
        /// The failure code.
        code: String,
        /// The first 160 bytes of the error.
        message: String,
        /// The worker that reported it, or found it stalled.
        worker: WorkerId,
    },
    /// The handler postponed the job. No attempt is counted.
    Snoozed = "task:snoozed" {
        /// How often the job was snoozed so far.
        snoozed_count: u32,
        /// How long until the next run.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
    },
    /// Its worker's handler cannot decode the payload. The job was postponed, since a later version of the worker may
    /// decode it. No attempt is counted.
    Undecodable = "task:undecodable" {
        /// How often this happened so far.
        undecodable_count: u32,
        /// How long until the next try.
        #[serde(rename = "delay_ms", serialize_with = "as_ms")]
        delay: Duration,
    },
    /// The job was cancelled while it waited or ran, or when it had stalled.
    Cancelled = "task:cancelled" {
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// The worker returned the job unfinished, or a person requeued a job that was in no list or set. No attempt is counted.
    Requeued = "task:requeued" {
        /// The name of the person or tool that requested it; `None` if the worker did it.
        by: Option<String>,
    },
    /// A failed or cancelled job was put back into its list, to run as if for the first time.
    ManuallyRetried = "task:manually_retried" {
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// A dispatch with the same unique key gave the waiting job a new input ([`Unique::replace`](crate::Unique::replace),
    /// [`debounce`](crate::Unique::debounce)).
    Replaced = "task:replaced" {},
    /// A delayed job was moved to the front of its list before it was due.
    Promoted = "task:promoted" {
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
    },
    /// A worker reported the outcome of a job that it no longer held. Nothing was recorded.
    OutcomeRejected = "task:outcome_rejected" {
        /// The fence under which the worker had held the job.
        fence: u64,
        /// What it reported.
        outcome: RejectedOutcome,
        /// The worker.
        worker: WorkerId,
    },
    /// Retention or a person removed the job, or it had no payload when it was claimed or had stalled.
    Removed = "task:removed" {
        /// The name of the person or tool that requested it through the [`Inspector`](crate::Inspector).
        by: Option<String>,
        /// Whether it was removed because its payload was missing: deleted, or lost by the server. There was nothing to run.
        lost_payload: bool,
    },
}

impl Event {
    /// Whether the job ended with this event: completed, failed or cancelled.
    ///
    /// `Stalled` is not terminal: if a stall ends the job, a terminal event follows. `Removed` is not terminal either;
    /// it usually comes long after a terminal event.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Event::Completed { .. } | Event::Failed { .. } | Event::Cancelled { .. })
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
