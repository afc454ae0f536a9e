//! Conditions of jobs that wait: no one claims them, or not in time.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::text::{many, span};
use crate::unix_time::{as_ms, as_ms_where_known};
use crate::worker_id::WorkerId;

/// Why jobs of a task wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum QueueCondition {
    /// Jobs wait, or are due, and no live worker has the task.
    NoWorker { waiting: u64, due: u64, held: u64, declared_by: Option<WorkerId> },
    /// Jobs are delayed, and no live worker has the task.
    NoWorkerForDelayed {
        delayed: u64,
        #[serde(rename = "next_due_in_ms", serialize_with = "as_ms_where_known")]
        next_due_in: Option<Duration>,
        declared_by: Option<WorkerId>,
    },
    /// No job waits, and the last worker of the task was lost.
    LastWorkerLost {
        worker: WorkerId,
        #[serde(rename = "seen_ago_ms", serialize_with = "as_ms")]
        seen_ago: Duration,
    },
    /// Jobs wait, and every worker of the task is stopping.
    WorkersStopping { waiting: u64 },
    /// Jobs wait in these partitions and none is claimed, although slots are free.
    JobsNotClaimed {
        waiting: u64,
        stuck: u64,
        partitions: u64,
        partition: u32,
        #[serde(rename = "waited_ms", serialize_with = "as_ms")]
        waited: Duration,
        #[serde(rename = "idle_ms", serialize_with = "as_ms_where_known")]
        idle: Option<Duration>,
    },
    /// The task is paused, or some of its partitions are.
    Paused {
        by: String,
        reason: String,
        waiting: u64,
        paused_partitions: u64,
        partitions: u64,
        #[serde(rename = "ago_ms", serialize_with = "as_ms")]
        ago: Duration,
    },
    /// Jobs are claimed as slots become free, and the next one has waited for long.
    Backlog {
        waiting: u64,
        #[serde(rename = "waited_ms", serialize_with = "as_ms")]
        waited: Duration,
    },
    /// All slots are taken, and no job was claimed for this long. `slots` is `None` where `max_jobs` of the workers is the limit.
    SlotsTaken {
        slots: Option<u64>,
        has_timeout: bool,
        #[serde(rename = "idle_ms", serialize_with = "as_ms")]
        idle: Duration,
        #[serde(rename = "waited_ms", serialize_with = "as_ms")]
        waited: Duration,
        #[serde(rename = "oldest_run_ms", serialize_with = "as_ms_where_known")]
        oldest_run: Option<Duration>,
    },
    /// All slots are taken.
    SlotsFull { slots: u64, waiting: u64 },
    /// Jobs wait and no slot is free: runs that lost their jobs hold some or all of them.
    SlotsHeldByLostRuns { waiting: u64, slots: u64, workers: Vec<LostSlots> },
}

/// The slots of a worker that are held by runs that lost their jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostSlots {
    /// The worker.
    pub worker: WorkerId,
    /// How many slots.
    pub slots: u64,
}

/// All slots that runs hold which lost their jobs.
pub(super) fn lost_slots(workers: &[LostSlots]) -> u64 {
    workers.iter().map(|worker| worker.slots).sum()
}

fn waiting(jobs: u64) -> String {
    format!("{} waiting", many(jobs, "job"))
}

fn taken(slots: Option<u64>) -> String {
    match slots {
        None => "the workers hold as many jobs as max_jobs allows".to_owned(),
        Some(1) => "the only slot is taken".to_owned(),
        Some(slots) => format!("all {slots} slots are taken"),
    }
}

impl fmt::Display for QueueCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorker { waiting: jobs, due, .. } => {
                let due = if *due > 0 { format!(" ({due} delayed and due)") } else { String::new() };
                write!(f, "{}{due}, and no live worker has the task", waiting(*jobs))
            }
            Self::NoWorkerForDelayed { delayed, next_due_in, .. } => {
                let next =
                    next_due_in.map_or_else(|| "at an unknown time".to_owned(), |next| format!("in {}", span(next)));
                write!(f, "{} delayed, the next due {next}, and no live worker has the task", many(*delayed, "job"))
            }
            Self::LastWorkerLost { seen_ago, .. } => {
                write!(f, "no live worker has the task; the last one was seen {} ago and did not stop", span(*seen_ago))
            }
            Self::WorkersStopping { waiting: jobs } => {
                write!(f, "{}, and all workers of the task are stopping", waiting(*jobs))
            }
            Self::JobsNotClaimed { waiting: jobs, stuck, partitions, partition, waited, idle } => {
                match stuck == partitions {
                    true => write!(f, "{}, the next one for {}", waiting(*jobs), span(*waited))?,
                    false => write!(
                        f,
                        "jobs wait in {stuck} of {partitions} partitions, the next one in partition {partition} for {}",
                        span(*waited)
                    )?,
                }
                match idle {
                    Some(idle) => write!(f, "; slots are free, and none was claimed for {}", span(*idle)),
                    None => f.write_str("; slots are free, and none was ever claimed"),
                }
            }
            Self::Paused { by, reason, waiting: jobs, paused_partitions, partitions, ago } => {
                if paused_partitions < partitions {
                    write!(f, "{paused_partitions} of {partitions} partitions are ")?;
                }
                write!(f, "paused by {by} {} ago", span(*ago))?;
                if !reason.is_empty() {
                    write!(f, " ({reason})")?;
                }
                if *jobs > 0 { write!(f, ", {}", waiting(*jobs)) } else { Ok(()) }
            }
            Self::Backlog { waiting: jobs, waited } => write!(
                f,
                "{}, the next one for {}; all slots are taken, and jobs are claimed as slots become free",
                waiting(*jobs),
                span(*waited)
            ),
            Self::SlotsTaken { slots, idle, waited, .. } => write!(
                f,
                "{}, none was claimed for {}, and the next job has waited {}",
                taken(*slots),
                span(*idle),
                span(*waited)
            ),
            Self::SlotsFull { slots, waiting: jobs } => write!(f, "{}, {}", taken(Some(*slots)), waiting(*jobs)),
            Self::SlotsHeldByLostRuns { waiting: jobs, slots, workers } => {
                let lost = lost_slots(workers);
                write!(
                    f,
                    "{} and none is claimed: runs that lost their jobs hold {lost} of {slots} slots (",
                    waiting(*jobs)
                )?;
                for (at, LostSlots { worker, slots }) in workers.iter().enumerate() {
                    write!(f, "{}{worker}: {slots}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

fn start_worker(declared_by: Option<&WorkerId>, held: u64) -> String {
    match declared_by {
        Some(worker) => format!("start a worker that has the task; the last one to start with it was {worker}"),
        None if held > 0 => "start a worker that has the task".to_owned(),
        None => "no worker ever had this task: start one that has it, or correct the name".to_owned(),
    }
}

impl QueueCondition {
    pub(super) fn hint(&self, task: &str) -> String {
        match self {
            Self::NoWorker { held, declared_by, .. } => start_worker(declared_by.as_ref(), *held),
            Self::NoWorkerForDelayed { declared_by, .. } => start_worker(declared_by.as_ref(), 0),
            Self::LastWorkerLost { worker, .. } => {
                format!("no job waits yet: start a worker that has the task; the last one was {worker}")
            }
            Self::WorkersStopping { .. } => {
                "start a worker that has the task; these end with their jobs, or when their grace period is over".to_owned()
            }
            Self::JobsNotClaimed { .. } => {
                format!("the log of its workers says why; `heartline audit -t {task}` checks whether a key is damaged")
            }
            Self::Paused { paused_partitions, partitions, .. } if paused_partitions < partitions => format!(
                "a partition did not answer then: `heartline task pause {task}` pauses all, `heartline task resume {task}` resumes all"
            ),
            Self::Paused { .. } => format!("`heartline task resume {task}` lets its jobs start"),
            Self::Backlog { .. } => {
                "if that time grows, add workers or concurrency; `heartline tasks` shows the rates".to_owned()
            }
            Self::SlotsTaken { oldest_run, has_timeout, .. } => {
                let oldest = oldest_run.map_or("none of its own jobs runs".to_owned(), |oldest| {
                    format!("its oldest run is {} old", span(oldest))
                });
                let timeout = if *has_timeout { "" } else { "; its runs have no timeout" };
                format!(
                    "{oldest}: `heartline jobs list -t {task} -s running` lists what runs, `heartline jobs cancel -t {task} ID` stops a run; or add \
                     workers{timeout}"
                )
            }
            Self::SlotsFull { .. } => {
                format!("add workers; `heartline jobs list -t {task} -s running` lists what runs")
            }
            Self::SlotsHeldByLostRuns { .. } => {
                "restart those workers: their handlers block a thread, and nothing else ends that. A handler must await, or block in \
                 spawn_blocking and check ctx.heartbeat() there"
                    .to_owned()
            }
        }
    }

    pub(super) fn lets_jobs_run(&self) -> bool {
        matches!(
            self,
            Self::NoWorker { .. }
                | Self::NoWorkerForDelayed { .. }
                | Self::LastWorkerLost { .. }
                | Self::WorkersStopping { .. }
                | Self::Paused { .. }
        )
    }
}
