//! What several finders need of a task and its workers.

use std::time::{Duration, SystemTime};

use super::super::holders::HolderReport;
use super::super::tasks::TaskReport;
use super::super::workers::{WorkerReport, WorkerState};
use crate::error::Error;

/// How many tasks are read at a time.
pub(super) const TOGETHER: usize = 20;

/// After this long a wait, the holders of the jobs are read.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(60);

/// Losses and restarts of the last hour, and workers seen in it, count as recent.
pub(super) const RECENT: Duration = Duration::from_secs(3600);

/// The stall interval of a task that has not set one.
pub(super) const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

/// Tasks, all workers, and the holders of these tasks' jobs where something may be wrong.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) tasks: &'a [TaskReport],
    pub(super) workers: &'a [WorkerReport],
    pub(super) holders: &'a [HolderReport],
}

/// An empty value if a damaged task refused the read. That task is reported elsewhere, and must not hide others.
pub(super) fn if_readable<T: Default>(read: Result<T, Error>) -> Result<T, Error> {
    match read {
        Err(e) if !e.is_retryable() => Ok(T::default()),
        read => read,
    }
}

/// How long before the time of the report that was.
pub(super) fn ago(task: &TaskReport, at: SystemTime) -> Duration {
    task.as_of.duration_since(at).unwrap_or_default()
}

/// Whether the next job of the task has waited for this long, and the task is not paused.
pub(super) fn has_waited(task: &TaskReport, long: Duration) -> bool {
    task.paused.is_none() && task.next_waiting_age.is_some_and(|age| age >= long)
}

pub(super) fn has_task(worker: &WorkerReport, task: &str) -> bool {
    worker.tasks.iter().any(|its| its.task == task)
}

/// The workers that claim jobs of the task.
pub(super) fn claimers<'a>(task: &'a str, workers: &'a [WorkerReport]) -> impl Iterator<Item = &'a WorkerReport> {
    workers.iter().filter(move |worker| worker.state == WorkerState::Live && has_task(worker, task))
}

/// Waiting and due jobs.
pub(super) fn waiting(task: &TaskReport) -> u64 {
    task.counts.waiting.saturating_add(task.due)
}
