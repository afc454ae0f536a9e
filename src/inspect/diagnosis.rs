//! What is wrong, as data. Tools decide by the fields, and print the text.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::tasks::TaskReport;
use super::workers::{WorkerReport, WorkerState, WorkerTask};
use crate::stall::cadence;
use crate::worker_id::WorkerId;

/// Something that is wrong, or may be. [`Display`](fmt::Display) says what, [`hint`](Diagnosis::hint) what to do about it.
///
/// As JSON its `kind` is the variant in lower case with underscores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Diagnosis {
    /// Jobs wait and no worker can claim one: every slot is taken, some or all of them by runs that lost their jobs.
    SlotsHeldByLostRuns {
        /// The task.
        task: String,
        /// Jobs that wait, or are due.
        waiting: u64,
        /// The slots of its live workers.
        slots: u64,
        /// The workers with such runs.
        workers: Vec<LostSlots>,
    },
    /// No worker of the task can read the payload of these delayed jobs: a newer version dispatched them.
    NewerProducer {
        /// The task.
        task: String,
        /// About how many jobs that is.
        jobs: u64,
    },
}

/// The slots of a worker that runs hold which lost their jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostSlots {
    /// The worker.
    pub worker: WorkerId,
    /// How many slots.
    pub slots: u64,
}

impl Diagnosis {
    /// What is wrong with a task, by these reports.
    #[must_use]
    pub fn of_task(task: &TaskReport, workers: &[WorkerReport]) -> Vec<Diagnosis> {
        slots_held_by_lost_runs(task, workers).into_iter().collect()
    }

    /// Whether it keeps jobs from being done. Otherwise it is for a person to judge.
    #[must_use]
    pub fn is_grave(&self) -> bool {
        match self {
            Diagnosis::SlotsHeldByLostRuns { slots, workers, .. } => lost(workers) >= *slots,
            Diagnosis::NewerProducer { .. } => false,
        }
    }

    /// The task that it is about, if it is about one.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        match self {
            Diagnosis::SlotsHeldByLostRuns { task, .. } | Diagnosis::NewerProducer { task, .. } => Some(task),
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Diagnosis::SlotsHeldByLostRuns { .. } => {
                "restart those workers: their handlers block a thread, which nothing else can end. Then find out which handler blocks: it \
                 must await, or run what blocks in spawn_blocking and check ctx.heartbeat() there"
                    .to_owned()
            }
            Diagnosis::NewerProducer { task, .. } => format!(
                "deploy the workers: until then such a job is tried again for up to 24 h (`undecodable_for`), and uses no attempt; \
                 `heartline jobs list -t {task} -s delayed --code codec` lists them"
            ),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnosis::SlotsHeldByLostRuns { waiting, slots, workers, .. } => {
                let (jobs, lost) = (if *waiting == 1 { "job waits" } else { "jobs wait" }, lost(workers));
                write!(
                    f,
                    "{waiting} {jobs} and none is claimed: runs that lost their jobs hold {lost} of {slots} slots ("
                )?;
                for (at, LostSlots { worker, slots }) in workers.iter().enumerate() {
                    write!(f, "{}{worker}: {slots}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Diagnosis::NewerProducer { jobs, .. } => {
                let s = if *jobs == 1 { "" } else { "s" };
                write!(
                    f,
                    "{jobs} job{s} delayed, since no worker can read the payload: a producer is newer than its workers"
                )
            }
        }
    }
}

fn lost(workers: &[LostSlots]) -> u64 {
    workers.iter().map(|worker| worker.slots).sum()
}

/// A task whose interval is not known has this one.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

fn slots_held_by_lost_runs(task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    let waiting = task.counts.waiting.saturating_add(task.due);
    let interval = task.parts.iter().filter_map(|part| part.interval).max().unwrap_or(DEFAULT_INTERVAL);
    let live = workers.iter().filter(|worker| worker.state == WorkerState::Live);
    let claimers: Vec<(&WorkerReport, &WorkerTask)> =
        live.filter_map(|worker| Some((worker, worker.tasks.iter().find(|its| its.task == task.task)?))).collect();
    let has_room = claimers.iter().any(|(worker, _)| worker.has_room(&task.task));
    if waiting == 0 || task.paused.is_some() || has_room {
        return None;
    }
    let is_long = |its: &WorkerTask| {
        let since = its.last_lost_at.map(|at| task.as_of.duration_since(at).unwrap_or_default());
        since.is_some_and(|since| since > cadence::lost_slots(interval))
    };
    let lost_slots = |(worker, its): &(&WorkerReport, &WorkerTask)| {
        // Where a worker has fewer slots than its tasks ask for, a run of another task may hold the one that this task needs.
        let all = || worker.tasks.iter().filter(|its| is_long(its));
        let of_worker = all().map(|its| its.lost_runs).sum::<u64>();
        let own = if is_long(its) { its.lost_runs.min(its.slots) } else { 0 };
        let slots = if worker.max_jobs.is_some_and(|most| of_worker >= most) { its.slots } else { own };
        (slots > 0).then(|| LostSlots { worker: worker.worker.clone(), slots })
    };
    let held: Vec<LostSlots> = claimers.iter().filter_map(lost_slots).collect();
    let slots = claimers.iter().map(|(_, its)| its.slots).sum();
    (!held.is_empty()).then(|| Diagnosis::SlotsHeldByLostRuns {
        task: task.task.clone(),
        waiting,
        slots,
        workers: held,
    })
}
