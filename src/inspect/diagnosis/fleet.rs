//! The state of all tasks, workers and servers, from which diagnoses are made.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join;

use super::super::Inspector;
use super::super::holders::HolderReport;
use super::super::lists::UnreachableLists;
#[cfg(feature = "schedules")]
use super::super::schedules::ScheduleCounts;
use super::super::server::ServerReport;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::super::workflow_report::WorkflowReport;
use super::find_crashes::{RECOVERED_FOR, RecentStalls};
use super::find_servers;
use super::find_workflows;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::{Seen, TOGETHER, if_readable};
use crate::error::Error;
use crate::join::join_all;
use crate::stall::action::StalledEvent;

/// For how many tasks the last stalls are read.
const STALLS: usize = 200;

/// How many pages of a task's stalls are read.
const PAGES: usize = 10;

/// How many tasks are checked key by key.
const CHECKED: usize = 50;

/// All tasks, workers and servers at one time. See [`Inspector::fleet`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetReport {
    /// The tasks; none if their list cannot be read.
    pub tasks: Vec<TaskReport>,
    /// The workers; none if their list cannot be read.
    pub workers: Vec<WorkerReport>,
    /// The holders of jobs, for tasks where something may be wrong.
    pub holders: Vec<HolderReport>,
    /// The lists that cannot be read, because their cluster node does not answer.
    pub away: UnreachableLists,
    /// The part that takes more calls.
    pub checks: Arc<FleetChecks>,
    /// When this was read, by the clock of the server.
    pub as_of: SystemTime,
}

/// The part of a [`FleetReport`] that takes more calls, and changes slowly.
#[derive(Debug)]
#[non_exhaustive]
pub struct FleetChecks {
    /// The server, or the primaries of a cluster.
    pub servers: Vec<ServerReport>,
    /// The workflows; none if their list cannot be read.
    pub workflows: Vec<WorkflowReport>,
    /// Whether the list of workflows can be read, and is not lost.
    pub lists_workflows: bool,
    /// The schedules in numbers of each task that has or had some, and can be read.
    #[cfg(feature = "schedules")]
    pub schedules: Vec<ScheduleCounts>,
    /// The tasks that can be read, although some of their keys have another type.
    pub damaged: BTreeSet<String>,
    pub(super) found: Vec<Diagnosis>,
}

impl Inspector {
    /// All tasks, workers and servers. Uses the checks of an earlier report, if given.
    pub async fn fleet(&self, checks: Option<Arc<FleetChecks>>) -> Result<FleetReport, Error> {
        let (tasks, workers) = join(self.tasks(), self.workers()).await;
        let away = match (&tasks, &workers) {
            (Err(e), _) | (_, Err(e)) if e.is_retryable() => self.unreachable_lists().await?,
            _ => UnreachableLists::default(),
        };
        let tasks = unless_away(away.tasks.is_some(), tasks)?;
        let mut workers = unless_away(away.workers.is_some(), workers)?;
        // Boxed: deeply nested futures exceed a limit of the compiler.
        let mut holders = Box::pin(self.suspicious_holders(&tasks, &mut workers)).await?;
        let checks = match checks {
            Some(checks) => checks,
            None => Arc::new(Box::pin(self.fleet_checks(&tasks)).await?),
        };
        if find_servers::writes_refused(&checks.servers).is_some() {
            // It is unknown which workers are live, so report no holder.
            holders.clear();
        }
        Ok(FleetReport { tasks, workers, holders, away, checks, as_of: self.now().await })
    }

    async fn fleet_checks(&self, tasks: &[TaskReport]) -> Result<FleetChecks, Error> {
        let mut found = self.foreign_keys_of(tasks).await?;
        let damaged = found.iter().filter_map(|diagnosis| diagnosis.task.clone()).collect();
        found.extend(Box::pin(self.diagnose_retries(tasks)).await);
        #[cfg(feature = "schedules")]
        let schedules = {
            let (schedules, wrong) = Box::pin(self.diagnose_schedules(tasks)).await;
            found.extend(wrong);
            schedules
        };
        let workflows = self.workflows_or_diagnosis().await;
        let lists_workflows = workflows.as_ref().is_ok_and(|flows| find_workflows::lost_list(tasks, flows).is_none());
        let workflows = match workflows {
            Ok(flows) => {
                found.extend(find_workflows::of_all(tasks, &flows));
                flows
            }
            Err(unlisted) => {
                found.push(unlisted);
                Vec::new()
            }
        };
        Ok(FleetChecks {
            servers: self.servers().await?,
            workflows,
            lists_workflows,
            #[cfg(feature = "schedules")]
            schedules,
            damaged,
            found,
        })
    }

    /// Reports tasks that can be read, although keys of another type make other calls fail.
    async fn foreign_keys_of(&self, tasks: &[TaskReport]) -> Result<Vec<Diagnosis>, Error> {
        let mut sound: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none()).collect();
        // Tasks with jobs come first.
        sound.sort_by_key(|task| Reverse(task.counts.pending_total()));
        sound.truncate(CHECKED);
        let mut found = Vec::new();
        for some in sound.chunks(TOGETHER) {
            let reads = join_all(some.iter().map(|task| self.foreign_keys(&task.task))).await;
            for (task, read) in some.iter().zip(reads) {
                // Skip the task if this user lacks the right.
                let keys = if_readable(read)?;
                if !keys.is_empty() {
                    found.push(Diagnosis::risk(Some(&task.task), DiagnosisKind::ForeignKeys { keys, workflow: None }));
                }
            }
        }
        Ok(found)
    }

    /// The last stalls of these tasks. Skips tasks whose stalls cannot be read.
    pub async fn recent_stalls(&self, tasks: &[TaskReport]) -> RecentStalls {
        let mut readable: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none()).collect();
        // Tasks with the most stalls come first. Most tasks have none.
        readable.sort_by_key(|task| Reverse(task.stalled));
        readable.truncate(STALLS);
        let reads = join_all(readable.iter().map(|task| self.last_stalls(&task.task))).await;
        let mut recent = RecentStalls::default();
        for (task, read) in readable.iter().zip(reads) {
            let Ok((stalls, is_whole)) = read else { continue };
            recent.stalls.extend(stalls);
            if !is_whole {
                recent.partial.insert(task.task.clone());
            }
        }
        recent
    }

    /// The last stalls of a task, and whether all of the last minutes are among them.
    pub(super) async fn last_stalls(&self, task: &str) -> Result<(Vec<StalledEvent>, bool), Error> {
        let (mut stalls, mut cursor, now) = (Vec::new(), None, self.now().await);
        for _ in 0..PAGES {
            let (some, next) = self.stalled_events(task, cursor.as_deref()).await?;
            let is_old = |stall: &StalledEvent| now.duration_since(stall.at).unwrap_or_default() > RECOVERED_FOR;
            let is_through = next.is_none() || some.last().is_none_or(is_old);
            stalls.extend(some);
            if is_through {
                return Ok((stalls, true));
            }
            cursor = next;
        }
        Ok((stalls, false))
    }

    /// The names of the tasks. Empty if the cluster node of their list does not answer.
    pub async fn listed_task_names(&self) -> Result<Vec<String>, Error> {
        match self.task_names().await {
            Err(e) if e.is_retryable() => unless_away(self.unreachable_lists().await?.tasks.is_some(), Err(e)),
            names => names,
        }
    }

    /// Every worker. Empty if the cluster node of their list does not answer.
    pub async fn listed_workers(&self) -> Result<Vec<WorkerReport>, Error> {
        match self.workers().await {
            Err(e) if e.is_retryable() => unless_away(self.unreachable_lists().await?.workers.is_some(), Err(e)),
            workers => workers,
        }
    }
}

fn unless_away<T>(is_unreachable: bool, read: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match read {
        Err(e) if e.is_retryable() && is_unreachable => Ok(Vec::new()),
        read => read,
    }
}

impl FleetReport {
    pub(super) fn seen(&self) -> Seen<'_> {
        Seen { tasks: &self.tasks, workers: &self.workers, holders: &self.holders }
    }

    /// What could be better about the servers and the round trips to them. [`Inspector::diagnose`] does not report it.
    #[must_use]
    pub fn setup(&self) -> Vec<Diagnosis> {
        let mut found = find_servers::of_servers(&self.checks.servers);
        found.retain(|diagnosis| !diagnosis.is_risk());
        found.extend(find_servers::of_round_trip(&self.checks.servers, &self.tasks));
        found
    }

    /// Whether the prefix is unused: there is no task and no live worker.
    #[must_use]
    pub fn is_new(&self) -> bool {
        let is_live = self.workers.iter().any(|worker| worker.state.is_live());
        self.tasks.is_empty() && self.away == UnreachableLists::default() && !is_live
    }
}
