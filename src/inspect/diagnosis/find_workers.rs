//! Finds what is wrong with workers.

use std::time::{Duration, SystemTime};

use super::super::workers::{DetectorReport, WorkerReport, WorkerState, WorkerTask};
use super::find_holders::lost_holder;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use crate::stall::cadence;
use crate::stall::witness::DetectorReset;
use crate::unix_time::to_ms;

/// Denied calls are repeated within seconds. After this long without a denial, the user has the right.
const DENIED_FOR: Duration = Duration::from_secs(60);

impl WorkerReport {
    /// The task whose calls the server denied this live worker in the last minute.
    fn denied_task(&self, now: SystemTime) -> Option<&WorkerTask> {
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

    /// The task of this live worker whose last heartbeat took over half of its period, and the stall interval in force.
    fn slow_heartbeats(&self) -> Option<(&WorkerTask, Duration)> {
        let slow = |its: &WorkerTask| {
            let interval = its.watches.iter().map(|watch| watch.interval).min()?;
            (its.beat_took > cadence::slow_beat(interval)).then_some(interval)
        };
        let slow = self.tasks.iter().find_map(|its| slow(its).map(|interval| (its, interval)));
        slow.filter(|_| self.state.is_live())
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
    let risk = |kind| Some(Diagnosis::risk(None, kind));
    if let Some(error) = worker.fault.clone() {
        let what = format!("presence of the worker {}", id());
        return risk(DiagnosisKind::Unreadable { what, error, is_denied: worker.is_denied });
    }
    let denied = |of_task: Option<&str>, is_sweep, answer: &str, error| {
        let (of_task, answer) = (of_task.map(str::to_owned), answer.to_owned());
        risk(DiagnosisKind::WorkerDenied { worker: id(), of_task, is_sweep, answer, error })
    };
    if let Some(its) = worker.denied_task(now) {
        return denied(Some(&its.task), false, &its.denied, its.denied_kind);
    }
    if worker.is_denied_workflow(now) {
        return denied(None, false, &worker.flows_denied, None);
    }
    if let Some(task) = worker.refused_sweep(now) {
        return denied(Some(task), true, "", None);
    }
    let held: u64 = worker.tasks.iter().map(|its| its.held).sum();
    if worker.state == WorkerState::Silent && held == 0 {
        let holder = lost_holder(&worker.worker, Some(worker), now);
        let (jobs, more, rescuer, within_ms) = (0, 0, None, 0);
        let kind = DiagnosisKind::LostWorker { jobs, is_exact: true, holder, more, rescuer, within_ms };
        return Some(Diagnosis::note(None, kind));
    }
    if let Some(blocked) = worker.runtime_blocked.filter(|_| worker.state.is_live()) {
        return risk(DiagnosisKind::RuntimeBlocked { worker: id(), blocked_ms: to_ms(blocked) });
    }
    if let Some(quiet) = worker.quiet.as_ref().filter(|_| worker.state == WorkerState::Quiet) {
        let (by, ago_ms) = (quiet.by.clone(), to_ms(now.duration_since(quiet.at).unwrap_or_default()));
        return Some(Diagnosis::note(None, DiagnosisKind::WorkerQuiet { worker: id(), by, ago_ms }));
    }
    let (its, interval) = worker.slow_heartbeats()?;
    let (of_task, held, took_ms) = (its.task.clone(), its.held, to_ms(its.beat_took));
    let period_ms = to_ms(cadence::beat_period(interval));
    risk(DiagnosisKind::HeartbeatsSlow { worker: id(), of_task, held, took_ms, period_ms })
}
