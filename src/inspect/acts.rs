//! Acts on jobs and tasks. Each act checks the state of a job in the step that changes it, and reports why it refused others.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;

use super::Inspector;
use super::act_report::JobSelection;
use super::bulk_action::{BulkAction, Kind};
use super::filter::JobFilter;
use super::tasks::TaskPause;
use crate::backend::actions;
use crate::error::Error;
use crate::escape::cut;
use crate::job::state::JobState;
use crate::join::join_all;
use crate::limits::MESSAGE_LIMIT;
use crate::unix_time::at_ms;
use crate::worker_id::WorkerId;

/// The result of [`Inspector::forget_task`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForgetOutcome {
    /// The task was removed.
    Forgotten,
    /// Nothing was removed, because these workers may have the task. They were seen in the last hour and have not stopped, or their
    /// presence is on an unreachable cluster node.
    Worked(Vec<WorkerId>),
    /// Nothing was removed, because the task has this many jobs in any state.
    HasJobs(u64),
}

impl Inspector {
    /// Puts failed and cancelled jobs back into their lists with the same ids. Attempts and stalls count from 0. Jobs in other states
    /// are refused, and so are jobs whose unique key another job has: see [`BulkAction::anyway`].
    pub fn retry(&self, task: &str, jobs: impl Into<JobSelection>) -> BulkAction {
        BulkAction::new(self, task, Kind::Retry { anyway: false }, jobs.into())
    }

    /// Moves delayed jobs to the front of their lists, before they are due. Jobs in other states are refused.
    pub fn run_now(&self, task: &str, jobs: impl Into<JobSelection>) -> BulkAction {
        BulkAction::new(self, task, Kind::RunNow, jobs.into())
    }

    /// Cancels jobs. Waiting and delayed jobs are cancelled at once. The workers of held jobs are asked to stop them. Terminal jobs are
    /// refused. The reason is cut to 4 KiB.
    pub fn cancel(&self, task: &str, jobs: impl Into<JobSelection>, reason: &str) -> BulkAction {
        BulkAction::new(self, task, Kind::Cancel { reason: cut(reason, MESSAGE_LIMIT).to_owned() }, jobs.into())
    }

    /// Removes jobs that no worker holds, with all their data. Held jobs are refused: cancel them first.
    pub fn remove(&self, task: &str, jobs: impl Into<JobSelection>) -> BulkAction {
        BulkAction::new(self, task, Kind::Remove, jobs.into())
    }

    /// Removes every job of a task that was in this state when the act began. Held jobs are refused: cancel them first.
    pub fn purge(&self, task: &str, state: JobState) -> BulkAction {
        self.remove(task, JobFilter::new(state))
    }

    /// Pauses all partitions of a task: no job is claimed until [`resume`](Inspector::resume). Running jobs continue, with heartbeats
    /// and outcomes. Waiting and due jobs stay, but jobs with [`expires_after`](crate::Dispatch::expires_after) still expire. If the task
    /// was already paused, the earlier pause is kept and returned. The reason is cut to 4 KiB.
    ///
    /// # Errors
    /// If the node of one partition is unreachable, the others are still paused, see [`TaskPause::partitions`].
    pub async fn pause(&self, task: &str, reason: &str) -> Result<Option<TaskPause>, Error> {
        let (tables, reason) = (self.tables_now(task).await?, cut(reason, MESSAGE_LIMIT));
        let pause =
            |keys| async move { self.ask(async |conn| actions::pause(conn, keys, &self.by, reason).await).await };
        // At the same time, so that an unreachable partition does not keep the others running.
        let mut answers = try_all(tables.iter().map(|keys| pause(&**keys))).await?;
        let partitions = answers.len();
        let before = answers.swap_remove(0);
        Ok(before.map(|before| TaskPause { at: at_ms(before.at_ms), by: before.by, reason: before.reason, partitions }))
    }

    /// Ends the pause of a task. Returns how long it lasted, or `None` if the task was not paused.
    pub async fn resume(&self, task: &str) -> Result<Option<Duration>, Error> {
        let tables = self.tables_now(task).await?;
        let resume = |keys| async move { self.ask(async |conn| actions::resume(conn, keys, &self.by).await).await };
        Ok(try_all(tables.iter().map(|keys| resume(&**keys))).await?.into_iter().flatten().max())
    }

    /// Removes a task that no worker has and that has no jobs in any state. This removes its options, counters and events, and its
    /// place in the list of tasks.
    pub async fn forget_task(&self, task: &str) -> Result<ForgetOutcome, Error> {
        let tables = self.tables_now(task).await?;
        // The tasks of a worker are unknown while the node of its presence is unreachable.
        let workers = self.workers().await?.into_iter().filter(|worker| {
            let may_have_it = worker.is_unreachable || worker.tasks.iter().any(|its| its.task == task);
            worker.state != super::workers::WorkerState::Gone && may_have_it
        });
        let workers: Vec<WorkerId> = workers.map(|worker| worker.worker).collect();
        if !workers.is_empty() {
            return Ok(ForgetOutcome::Worked(workers));
        }
        if tables.len() > 1 {
            let jobs = self.all_jobs(task).await?;
            if jobs > 0 {
                return Ok(ForgetOutcome::HasJobs(jobs));
            }
        }
        // Remove the first table last, since it leads to the others.
        for keys in tables.iter().rev() {
            if let Some(jobs) = self.ask(async |conn| actions::forget(conn, keys).await).await? {
                return Ok(ForgetOutcome::HasJobs(jobs));
            }
        }
        self.store.tables(task).learn(1);
        self.ask(async |conn| self.store.unregister(conn, task).await).await?;
        // A job may have arrived meanwhile. List its task again, so that people see it.
        let jobs = self.all_jobs(task).await?;
        if jobs > 0 {
            self.ask(async |conn| self.store.register(conn, task).await).await?;
            return Ok(ForgetOutcome::HasJobs(jobs));
        }
        Ok(ForgetOutcome::Forgotten)
    }

    /// How many jobs a task has in any state.
    async fn all_jobs(&self, task: &str) -> Result<u64, Error> {
        let counts = self.task_counts(task).await?;
        Ok(JobState::ALL.iter().map(|state| counts.count(*state)).sum())
    }
}

/// Makes all calls, and returns their answers or the first failure.
async fn try_all<T>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, Error>> + Send>,
) -> Result<Vec<T>, Error> {
    join_all(calls).await.into_iter().collect()
}
