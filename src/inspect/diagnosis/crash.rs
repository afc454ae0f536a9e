//! Conditions of jobs whose workers died, froze or were cut off.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::text::{many, quoted, span};
use super::lost_holder::{LostHolder, Rescue, rescue_hint};
use crate::unix_time::as_ms;
use crate::worker_id::WorkerId;

/// What is wrong with jobs whose workers died, froze or were cut off.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CrashCondition {
    /// A worker that is not live holds jobs.
    HeldByLostWorker { jobs: u64, is_exact: bool, holder: LostHolder, rescue: Rescue },
    /// More workers that are not live hold jobs, `dead` of them proven dead.
    HeldByMoreLostWorkers { jobs: u64, is_exact: bool, workers: u64, dead: u64 },
    /// A worker claims jobs and cannot update its presence.
    HeldByMuteWorker {
        jobs: u64,
        worker: WorkerId,
        #[serde(rename = "claimed_ago_ms", serialize_with = "as_ms")]
        claimed_ago: Duration,
        #[serde(rename = "seen_ago_ms", serialize_with = "as_ms")]
        seen_ago: Duration,
    },
    /// The holders of only some held jobs were read; workers that are not live reported `reported` jobs.
    HoldersNotRead { read: u64, held: u64, reported: u64 },
    /// No worker has swept the held jobs for several intervals.
    SweepOverdue {
        #[serde(rename = "ago_ms", serialize_with = "as_ms")]
        ago: Duration,
        #[serde(rename = "interval_ms", serialize_with = "as_ms")]
        interval: Duration,
    },
    /// Silent jobs are parked for a person.
    JobsParked { jobs: u64 },
    /// Jobs that workers hold which are not live fail when they are recovered: `by_person` alone, or by the next live worker.
    JobsWillFail { jobs: u64, first: Option<String>, by_person: bool, has_live_workers: bool },
    /// Jobs that were held when two or more workers died, and have not ended.
    PoisonSuspects {
        jobs: Vec<String>,
        others: u64,
        top: Option<String>,
        always_alone: bool,
        is_proven: bool,
        is_paused: bool,
        has_workers: bool,
    },
    /// Jobs that failed after they were held when two or more workers died.
    FailedSuspects { jobs: Vec<String> },
    /// Jobs were recovered from workers in the last minutes; and how that ended.
    JobsRecovered {
        jobs: u64,
        stalls: u64,
        is_exact: bool,
        workers: Vec<WorkerId>,
        failed: u64,
        cancelled: u64,
        #[serde(rename = "last_ago_ms", serialize_with = "as_ms")]
        last_ago: Duration,
    },
    /// The stalls of this many tasks were not read.
    StallsNotRead { tasks: u64 },
}

fn first(ids: &[String]) -> String {
    let more = if ids.len() > 3 { ", …" } else { "" };
    format!("{}{more}", ids.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn jobs_held(jobs: u64, is_exact: bool) -> String {
    format!("{}{} held by", if is_exact { "" } else { "at least " }, many(jobs, "job"))
}

impl fmt::Display for CrashCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldByLostWorker { jobs, is_exact, holder, .. } => {
                write!(f, "{} {holder}", jobs_held(*jobs, *is_exact))
            }
            Self::HeldByMoreLostWorkers { jobs, is_exact, workers, dead } => write!(
                f,
                "{} {} that are not live, {dead} of them proven dead",
                jobs_held(*jobs, *is_exact),
                many(*workers, "more worker")
            ),
            Self::HeldByMuteWorker { jobs, worker, claimed_ago, seen_ago } => write!(
                f,
                "{} held by {worker}, which works and cannot update its presence: it claimed a job {} ago, and was seen {} ago",
                many(*jobs, "job"),
                span(*claimed_ago),
                span(*seen_ago)
            ),
            Self::HoldersNotRead { read, held, .. } => write!(f, "the holders of {read} of {held} held jobs were read"),
            Self::SweepOverdue { ago, .. } => {
                write!(f, "jobs are held, and no worker has swept them for {}", span(*ago))
            }
            Self::JobsParked { jobs } => {
                write!(f, "{} parked for a person, as the options say", many(*jobs, "silent job"))
            }
            Self::JobsWillFail { jobs, by_person, .. } => {
                let when = if *by_person { "with `recover worker`" } else { "when recovered" };
                write!(f, "{} held by workers that are not live WILL FAIL {when}", many(*jobs, "job"))
            }
            Self::PoisonSuspects { jobs, .. } => {
                write!(f, "{} held when two or more workers died: {}", many(jobs.len() as u64, "job"), first(jobs))
            }
            Self::FailedSuspects { jobs } => write!(
                f,
                "{} failed after being held when two or more workers died: {}",
                many(jobs.len() as u64, "job"),
                first(jobs)
            ),
            Self::JobsRecovered { jobs, stalls, is_exact, workers, failed, cancelled, last_ago } => {
                write!(f, "{}{} recovered", if *is_exact { "" } else { "at least " }, many(*jobs, "job"))?;
                match &workers[..] {
                    [] => {}
                    [worker] => write!(f, " from {worker}")?,
                    workers => write!(f, " from {} workers", workers.len())?,
                }
                if stalls > jobs {
                    write!(f, ", {stalls} times in all")?;
                }
                write!(f, ", the last {} ago", span(*last_ago))?;
                if *failed > 0 {
                    write!(f, "; {failed} of them failed")?;
                }
                if *cancelled > 0 { write!(f, "; {cancelled} of them cancelled, as requested") } else { Ok(()) }
            }
            Self::StallsNotRead { tasks } => write!(f, "the stalls of {} were not read", many(*tasks, "task")),
        }
    }
}

impl CrashCondition {
    pub(super) fn hint(&self, task: &str) -> String {
        match self {
            Self::HeldByLostWorker { holder, rescue, .. } => rescue_hint(task, holder, rescue),
            Self::HeldByMoreLostWorkers { .. } => {
                "the same applies to them as to the workers above: `heartline workers --all` lists them".to_owned()
            }
            Self::HeldByMuteWorker { .. } => {
                "it is most likely ALIVE: its jobs would run twice if they were recovered. Its user may lack a right (docs/acl.md), or its key \
                 `worker:ID` has another type; its log says which"
                    .to_owned()
            }
            Self::HoldersNotRead { reported, .. } => format!(
                "workers that are not live last reported {reported} held jobs of the task: `heartline workers --all`"
            ),
            Self::SweepOverdue { .. } => format!("`heartline stalls outlook -t {task}` says why"),
            Self::JobsParked { .. } => {
                format!("`heartline recover silent -t {task}` lists them; then `recover running` or `recover fail`")
            }
            Self::JobsWillFail { first, by_person, has_live_workers, .. } => {
                let which = first.as_ref().map_or_else(|| "--all".to_owned(), |id| quoted(id));
                let again = format!(
                    "`heartline recover running -t {task} {which}` runs them again once they were silent for an interval"
                );
                let how = match (by_person, has_live_workers) {
                    (true, _) => again,
                    (false, false) => format!("before a worker starts, {again}"),
                    (false, true) => format!(
                        "a live worker recovers them about as soon as a person can: once they have failed, `heartline jobs list -t {task} -s failed \
                         --code worker_crashed` lists them, and `heartline jobs retry -t {task} ID` runs one again"
                    ),
                };
                format!("they have reached max_stalls, or crashes fail them; {how}")
            }
            Self::PoisonSuspects { is_proven, is_paused, has_workers, .. } => {
                let before = match (is_paused, has_workers) {
                    (true, _) => "the task is paused, so none of them starts",
                    (false, true) => "a job may take its process down",
                    (false, false) => "before you start another worker",
                };
                let doubt = if *is_proven { "" } else { "a worker that froze looks the same as a dead one; " };
                format!("{before}: {doubt}see `heartline stalls suspects -t {task}`; {}", self.accusation(task))
            }
            Self::FailedSuspects { .. } => format!(
                "a retry may take workers down again: `heartline stalls suspects -t {task}` shows how suspicious each is. Retry one at a time, on a \
                 worker with one slot"
            ),
            Self::JobsRecovered { .. } => format!("`heartline stalls list -t {task}` explains each"),
            Self::StallsNotRead { .. } => {
                "too many tasks have stalls: `heartline task show TASK` reads those of one".to_owned()
            }
        }
    }

    /// What to do about poison suspects: an innocent job that ran next to a guilty one looks the same.
    #[must_use]
    pub fn accusation(&self, task: &str) -> String {
        let Self::PoisonSuspects { jobs, others, top, always_alone, is_paused, .. } = self else {
            return String::new();
        };
        let named = jobs.iter().take(3).map(|id| quoted(id)).collect::<Vec<_>>().join(" ");
        let cancel = |ids: &str| format!("`heartline jobs cancel -t {task} {ids}`");
        match top {
            _ if *always_alone => format!(
                "each was the only job of its worker each time. If other jobs complete, cancel: {}; if none does, find out what stops the workers \
                 (the log of the host shows kills for lack of memory)",
                cancel(&named)
            ),
            Some(top) => format!("{} cancels the most suspicious one", cancel(&quoted(top))),
            None => {
                let which =
                    if *others == 0 { "which of them" } else { "whether it was one of these or a job that has ended" };
                let until = match is_paused {
                    true => format!("`heartline task resume {task}` when that worker is the only one"),
                    false => format!("`heartline task pause {task}` until that worker is the only one"),
                };
                format!(
                    "{which} is unknown, since they died together: run one at a time on a worker with one slot ({until})"
                )
            }
        }
    }

    pub(super) fn lets_jobs_run(&self) -> bool {
        match self {
            Self::HeldByLostWorker { .. }
            | Self::HeldByMoreLostWorkers { .. }
            | Self::JobsParked { .. }
            | Self::JobsWillFail { .. } => true,
            Self::HeldByMuteWorker { .. }
            | Self::HoldersNotRead { .. }
            | Self::SweepOverdue { .. }
            | Self::PoisonSuspects { .. }
            | Self::FailedSuspects { .. }
            | Self::JobsRecovered { .. }
            | Self::StallsNotRead { .. } => false,
        }
    }
}
