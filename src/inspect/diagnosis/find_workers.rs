//! Finds what is wrong with workers.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::super::tasks::TaskReport;
use super::super::workers::{DetectorReport, WorkerReport, WorkerState};
use super::find_holders::lost_holder;
use super::finding::Diagnosis;
use super::worker::WorkerCondition;
use crate::stall::witness::DetectorReset;

/// Denied calls are repeated within seconds: without a denial for this long, the right is there.
const DENIED_FOR: Duration = Duration::from_secs(60);

impl WorkerReport {
    /// The task whose calls the server denied this live worker in the last minute.
    fn denied_task(&self, now: SystemTime) -> Option<&super::super::workers::WorkerTask> {
        let is_recent = |at: SystemTime| now.duration_since(at).unwrap_or_default() < DENIED_FOR;
        let denied = self.tasks.iter().find(|its| its.denied_at.is_some_and(is_recent));
        denied.filter(|_| self.state.is_live())
    }

    /// Whether the server denied this live worker calls of a workflow in the last minute.
    fn is_denied_workflow(&self, now: SystemTime) -> bool {
        let is_recent = |at: SystemTime| now.duration_since(at).unwrap_or_default() < DENIED_FOR;
        self.state.is_live() && self.flows_denied_at.is_some_and(is_recent)
    }

    /// Whether it is live and the server denied it a call in the last minute.
    #[must_use]
    pub fn was_denied(&self, now: SystemTime) -> bool {
        self.denied_task(now).is_some() || self.is_denied_workflow(now)
    }

    /// A task whose last sweep by this live worker the server refused in the last two intervals.
    fn refused_sweep(&self, now: SystemTime) -> Option<&str> {
        let is_refused = |watch: &DetectorReport| {
            let since = watch.broken_at.map(|at| now.duration_since(at).unwrap_or_default());
            watch.broken == Some(DetectorReset::SweepRefused) && since.is_some_and(|since| since < watch.interval * 2)
        };
        let its = self.tasks.iter().find(|its| its.watches.iter().any(is_refused));
        its.filter(|_| self.state.is_live()).map(|its| its.task.as_str())
    }
}

/// What is wrong with a worker.
pub(super) fn of_worker(worker: &WorkerReport, now: SystemTime) -> Option<Diagnosis> {
    if worker.is_unreachable {
        return None;
    }
    let id = || worker.worker.clone();
    if let Some(error) = worker.fault.clone() {
        let is_denied = worker.is_denied;
        return Some(Diagnosis::risk(None, WorkerCondition::WorkerUnreadable { worker: id(), error, is_denied }));
    }
    if let Some(its) = worker.denied_task(now) {
        let (of_task, answer, error) = (its.task.clone(), its.denied.clone(), its.denied_kind);
        return Some(Diagnosis::risk(None, WorkerCondition::WorkerDenied { worker: id(), of_task, answer, error }));
    }
    if worker.is_denied_workflow(now) {
        let answer = worker.flows_denied.clone();
        return Some(Diagnosis::risk(None, WorkerCondition::WorkflowDenied { worker: id(), answer }));
    }
    if let Some(task) = worker.refused_sweep(now) {
        let of_task = task.to_owned();
        return Some(Diagnosis::risk(None, WorkerCondition::SweepRefused { worker: id(), of_task }));
    }
    let held: u64 = worker.tasks.iter().map(|its| its.held).sum();
    if worker.state == WorkerState::Silent && held == 0 {
        let holder = lost_holder(&worker.worker, Some(worker), now);
        return Some(Diagnosis::note(None, WorkerCondition::WorkerSilent { holder }));
    }
    let blocked = worker.runtime_blocked.filter(|_| worker.state.is_live())?;
    Some(Diagnosis::risk(None, WorkerCondition::RuntimeBlocked { worker: id(), blocked }))
}

/// What could be better with the workers together.
pub(super) fn of_all(workers: &[WorkerReport]) -> Vec<Diagnosis> {
    let live: Vec<&WorkerReport> = workers.iter().filter(|worker| worker.state.is_live()).collect();
    if live.is_empty() {
        return vec![Diagnosis::note(None, WorkerCondition::NoLiveWorker)];
    }
    let known = || live.iter().filter(|worker| !worker.is_unreachable);
    let versions: BTreeSet<String> = known().map(|worker| worker.version.clone()).collect();
    let wires: BTreeSet<u32> = known().map(|worker| worker.wire.unwrap_or(1)).collect();
    let mut found = Vec::new();
    if versions.len() > 1 {
        let versions = versions.into_iter().collect();
        found.push(Diagnosis::note(None, WorkerCondition::MixedVersions { versions }));
    }
    if wires.len() > 1 {
        let versions = wires.into_iter().collect();
        found.push(Diagnosis::note(None, WorkerCondition::MixedWireVersions { versions }));
    }
    found
}

/// The tasks whose options no worker has declared.
pub(super) fn undeclared(tasks: &[TaskReport]) -> Option<Diagnosis> {
    let undeclared = tasks.iter().filter(|task| task.fault.is_none() && task.options.values.is_empty());
    let tasks: Vec<String> = undeclared.map(|task| task.task.clone()).collect();
    (!tasks.is_empty()).then(|| Diagnosis::note(None, WorkerCondition::OptionsUnknown { tasks }))
}
