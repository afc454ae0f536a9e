//! Finds why one job does not run, if that may be wrong.

use super::super::Inspector;
use super::super::describe::is_overdue;
use super::super::holders::Holder;
use super::super::job::{JobReport, JobValues};
use super::super::tasks::TaskReport;
use super::super::text::shown;
use super::super::workers::WorkerReport;
use super::diagnose::add_caution;
use super::find_crashes::will_fail;
use super::find_data::task_unreadable;
use super::find_holders::{find, held_by_lost, held_by_mute};
use super::find_tasks::{no_worker, none_claims, paused};
use super::finding::{Caution, Diagnosis};
use super::kinds::DiagnosisKind;
use super::task_facts::{claimers, has_task, waiting};
use crate::error::Error;
use crate::job::failure::codes;
use crate::job::state::JobState;
use crate::stall::action::StallReason;
use crate::worker_id::WorkerId;

/// How a job that counts as waiting had ended, according to its stored data.
fn lost_outcome(job: &JobReport) -> Option<&'static str> {
    let code = job.error.as_ref().map(|error| error.code.as_str());
    match code {
        _ if job.result_bytes > 0 => Some("completed"),
        Some(codes::CANCELLED) => Some("been cancelled"),
        Some(codes::EXPIRED) => Some("expired"),
        _ => None,
    }
}

/// A failed job that was held when several workers died: a retry may take workers down again.
fn suspect(job: &JobReport) -> Option<Diagnosis> {
    let is_crash = job.error.as_ref().is_some_and(|error| error.code == codes::WORKER_CRASHED);
    let was_silent = job.recovery.as_ref().is_some_and(|recovery| recovery.reason == StallReason::HandlerSilent);
    let is_suspect = job.state == JobState::Failed && is_crash && !was_silent && job.stalled_count > 1;
    let kind = DiagnosisKind::FailedSuspects { jobs: vec![job.id.to_string()] };
    is_suspect.then(|| Diagnosis::note(Some(&job.task), kind))
}

impl Inspector {
    /// Why a job does not run, if that may be wrong, or why it should not be retried. Empty if nothing is wrong. For a healthy held job,
    /// only its holder is read.
    pub async fn diagnose_job(&self, job: &JobReport) -> Result<Vec<Diagnosis>, Error> {
        match &job.worker {
            Some(holder) => Box::pin(self.diagnose_held_job(job, holder)).await,
            None if matches!(job.state, JobState::Waiting | JobState::Delayed) => {
                Box::pin(self.diagnose_waiting_job(job)).await
            }
            None => Ok(suspect(job).into_iter().collect()),
        }
    }

    async fn diagnose_waiting_job(&self, job: &JobReport) -> Result<Vec<Diagnosis>, Error> {
        let task = match self.task(&job.task).await {
            Ok(task) => task,
            Err(e) if e.is_retryable() => return Err(e),
            // Report the job although its task is damaged.
            Err(e) => {
                return Ok(vec![task_unreadable(&job.task, e.chain().to_string(), e.is_denied())]);
            }
        };
        if job.state == JobState::Waiting {
            let (outcome, is_alone) = (lost_outcome(job), task.counts.waiting == 0);
            let jobs = if outcome.is_some() || is_alone { 1 } else { task.unplaced };
            if outcome.is_none() && is_alone && !self.still_waits(job).await? {
                return Ok(Vec::new());
            }
            if jobs > 0 {
                let kind = DiagnosisKind::JobsWithoutPlace { jobs, outcome };
                return Ok(vec![Diagnosis::risk(Some(&job.task), kind)]);
            }
        }
        let workers = self.listed_workers().await?;
        let Some(why) = why_it_waits(job, &task, &workers) else { return Ok(Vec::new()) };
        if task.paused.is_none()
            && let Some(unknown) = self.presence_unknown().await
        {
            return Ok(vec![unknown]);
        }
        self.with_caution(&task, vec![why]).await
    }

    /// Whether the job still counts as waiting. It may have begun meanwhile.
    async fn still_waits(&self, job: &JobReport) -> Result<bool, Error> {
        let now = self.job(&job.task, job.id.as_str(), JobValues::None).await?;
        let place = |job: &JobReport| (job.state, job.enqueued_at, job.dispatched_at);
        Ok(now.is_some_and(|now| place(&now) == place(job)))
    }

    async fn diagnose_held_job(&self, job: &JobReport, id: &WorkerId) -> Result<Vec<Diagnosis>, Error> {
        let worker = self.worker(id.as_str()).await?;
        let is_live = worker.as_ref().is_some_and(|worker| worker.state.is_live());
        if is_live && !job.is_silent {
            return Ok(Vec::new());
        }
        let task = self.task(&job.task).await?;
        if is_live {
            let silent = DiagnosisKind::JobSilent { worker: id.clone() };
            let found = is_overdue(&task).then(|| Diagnosis::risk(Some(&job.task), silent));
            return Ok(found.into_iter().collect());
        }
        if let Some(unknown) = self.presence_unknown().await {
            return Ok(vec![unknown]);
        }
        if let Some(worker) = &worker
            && let Some(mute) = self.diagnose_mute_holder(&job.task, worker).await?
        {
            return Ok(vec![mute]);
        }
        let at = job.started_at.unwrap_or(task.as_of);
        let holder = Holder { worker: id.clone(), jobs: 1, first_claimed_at: at, last_claimed_at: at };
        let mut found = vec![held_by_lost(&task, &holder, worker.as_ref(), true)];
        let is_last = task.is_last_run(job.options.max_count, job.stalled_count) && job.cancel_requested.is_none();
        if job.state == JobState::Running && is_last {
            found.insert(0, will_fail(&task, 1, Some(job.id.to_string())));
        }
        self.with_caution(&task, found).await
    }

    /// Adds a caution to hints that let jobs run, if the task has poison suspects.
    async fn with_caution(&self, task: &TaskReport, mut found: Vec<Diagnosis>) -> Result<Vec<Diagnosis>, Error> {
        add_caution(&mut found, &self.crashes_now(task).await?.at_large, Caution::Suspects);
        Ok(found)
    }

    /// Whether this worker, which is not live, runs but cannot update its presence: it claimed jobs of the task after its last presence.
    pub async fn diagnose_mute_holder(&self, task: &str, worker: &WorkerReport) -> Result<Option<Diagnosis>, Error> {
        let now = self.now().await;
        let holders = self.lock_holders(task).await?.holders;
        let own = holders.iter().find(|holder| holder.worker == worker.worker);
        Ok(own.and_then(|holder| held_by_mute(task, holder, Some(worker), now)))
    }

    /// The holders of jobs of the task that are not live, one by one.
    pub async fn diagnose_holders(
        &self,
        task: &TaskReport,
        workers: &[WorkerReport],
    ) -> Result<Vec<(WorkerId, Diagnosis)>, Error> {
        let report = self.lock_holders(&task.task).await?;
        let mut found = Vec::new();
        for holder in &report.holders {
            let known = find(&holder.worker, workers);
            if !known.is_some_and(|worker| worker.state.is_live()) {
                let lost = || held_by_lost(task, holder, known, report.is_whole);
                let own = held_by_mute(&task.task, holder, known, task.as_of).unwrap_or_else(lost);
                found.push((holder.worker.clone(), own));
            }
        }
        Ok(found)
    }

    /// What a worker holds, task by task, and what happens to the jobs when they are recovered. Empty if it holds nothing.
    pub async fn describe_held(&self, worker: &WorkerReport) -> Result<String, Error> {
        let mut held = Vec::new();
        for its in worker.tasks.iter().filter(|its| its.held > 0) {
            let task = self.task(&its.task).await?;
            let kept = if task.runs_wait_for_person() { ", which wait for a person" } else { "" };
            let failing = match self.would_fail(&task, |id| id == worker.worker.as_str()).await? {
                0 => String::new(),
                failing => format!(", {failing} of which will fail: they have reached max_stalls"),
            };
            held.push(format!("{} of {}{kept}{failing}", its.held, shown(&its.task)));
        }
        Ok(held.join("; "))
    }
}

/// Why a waiting or due job does not start.
fn why_it_waits(job: &JobReport, task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    if job.state == JobState::Delayed && job.due_at.is_none_or(|at| at > task.as_of) {
        return None;
    }
    let name = &*task.task;
    if let Some(paused) = paused(task) {
        return Some(paused);
    }
    if task.live_workers == 0 {
        return task.knows_workers.then(|| Diagnosis::risk(Some(name), no_worker(task, workers)));
    }
    let is_live = workers.iter().any(|worker| has_task(worker, name) && worker.state.is_live());
    if task.knows_workers && is_live && claimers(name, workers).next().is_none() {
        return Some(Diagnosis::risk(Some(name), none_claims(task, workers, true)));
    }
    let is_full = task.counts.claimed + task.counts.running >= task.slots;
    let (waiting, slots) = (waiting(task), Some(task.slots));
    let kind = DiagnosisKind::SlotsTaken { waiting, slots, waited_ms: None, idle_ms: None, oldest_run_ms: None };
    is_full.then(|| Diagnosis::note(Some(name), kind))
}
