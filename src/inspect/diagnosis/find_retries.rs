//! Finds jobs that are retried, snooze, cannot be decoded, lost their payload, or wait for a paused key. It reads samples.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use super::super::Inspector;
use super::super::describe::PROGRAM_NOT_STARTED;
use super::super::filter::JobFilter;
use super::super::job::{JobReport, JobValues};
use super::super::lane::Lane;
use super::super::limits::LimitReached;
use super::super::page::JobRow;
use super::super::tasks::TaskReport;
use super::find_failures::{are_many, of_broken_off};
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::{TOGETHER, ago};
use crate::job::failure::codes;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::join::{join_all, try_join_all};
use crate::unix_time::to_ms;

/// For how many tasks jobs are read.
const TASKS: usize = 50;

/// How many delayed jobs of a task are read, and as many waiting ones.
const JOBS: usize = 100;

/// How many jobs are read one by one for their snoozes, and how many snoozes count as often.
const SNOOZED: (usize, u32) = (5, 3);

/// A worker's report about a job is valid for this long.
const JUST_NOW: Duration = Duration::from_secs(60);

/// How many keys with settings of their own are read of a task.
const KEYS: usize = 200;

/// How many waiting jobs, and as many delayed ones, are checked for lost payloads.
const QUEUED: usize = 50;

fn has_failed(job: &&JobRow) -> bool {
    job.failed_attempts > 0
}

/// How many of these jobs run again after a failed run.
fn retries(jobs: &[JobRow]) -> usize {
    jobs.iter().filter(has_failed).count()
}

/// How urgent it is to read the task: recent failures count more than delayed jobs.
fn may_fail(task: &TaskReport) -> u64 {
    task.failed_since_completed.saturating_mul(1_000_000).saturating_add(task.counts.delayed)
}

/// The tasks with the highest values, without those that cannot be read or have 0.
fn most(tasks: &[TaskReport], of: fn(&TaskReport) -> u64) -> Vec<&TaskReport> {
    let mut found: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none() && of(task) > 0).collect();
    found.sort_by_key(|task| Reverse(of(task)));
    found.truncate(TASKS);
    found
}

impl Inspector {
    /// What keeps jobs of these tasks from completing, according to a sample of them. Skips tasks that cannot be read: they are reported
    /// elsewhere.
    pub(super) async fn diagnose_retries(&self, tasks: &[TaskReport]) -> Vec<Diagnosis> {
        let without = most(tasks, |task| task.without_payload);
        let delayed = most(tasks, may_fail);
        let full = most(tasks, |task| task.lanes.map_or(0, |lanes| lanes.full));
        let mut found = Vec::new();
        for some in full.chunks(TOGETHER) {
            found.extend(join_all(some.iter().map(|task| self.paused_keys(task))).await.into_iter().flatten());
        }
        for some in without.chunks(TOGETHER) {
            found.extend(join_all(some.iter().map(|task| self.without_payload(task))).await.into_iter().flatten());
        }
        found.extend(tasks.iter().filter_map(of_broken_off));
        for some in delayed.chunks(TOGETHER) {
            found.extend(join_all(some.iter().map(|task| self.retries_of(task))).await.into_iter().flatten());
        }
        found
    }

    /// Reports paused keys whose jobs wait.
    async fn paused_keys(&self, task: &TaskReport) -> Option<Diagnosis> {
        let lanes = self.lanes(&task.task).ok()?.with_settings(KEYS).await.ok()?;
        let since = |lane: &Lane| match lane.limit {
            Some(LimitReached::KeyPaused { since }) if lane.waiting > 0 => Some(since),
            _ => None,
        };
        let paused: Vec<SystemTime> = lanes.iter().filter_map(since).collect();
        let ago_ms = to_ms(task.as_of.duration_since(*paused.iter().min()?).unwrap_or_default());
        Some(Diagnosis::note(Some(&task.task), DiagnosisKind::KeysPaused { paused: paused.len() as u64, ago_ms }))
    }

    /// Reports jobs without payload. Waiting ones are lost.
    async fn without_payload(&self, task: &TaskReport) -> Option<Diagnosis> {
        let (name, jobs) = (&*task.task, task.without_payload);
        let mut rows = Vec::new();
        for state in [JobState::Waiting, JobState::Delayed] {
            rows.extend(self.jobs(name, &JobFilter::new(state).oldest_first(), None, QUEUED).await.ok()?.jobs);
        }
        let reads = try_join_all(rows.iter().map(|row| self.job(name, row.id.as_str(), JobValues::None))).await.ok()?;
        // A job without payload has no other data. A job that was removed meanwhile looks the same.
        let lost: Vec<&JobRow> = rows.iter().zip(reads).filter(|(_, job)| job.is_none()).map(|(row, _)| row).collect();
        let kind = DiagnosisKind::PayloadsLost {
            jobs,
            waiting: (lost.len() as u64).min(jobs),
            first: lost.first().map(|row| row.id.to_string()),
            removed_ago_ms: None,
        };
        Some(Diagnosis::when(!lost.is_empty(), Some(name), kind))
    }

    /// Why delayed jobs of the task may never complete, or why jobs wait again after a failed run.
    async fn retries_of(&self, task: &TaskReport) -> Option<Diagnosis> {
        let name = &*task.task;
        let read = async |filter: JobFilter| self.jobs(name, &filter, None, JOBS).await.map(|page| page.jobs).ok();
        // The next delayed jobs, and waiting ones, which may have returned to the end of their list after a failed run.
        let delayed = read(JobFilter::new(JobState::Delayed).oldest_first()).await?;
        let waiting = read(JobFilter::new(JobState::Waiting)).await?;
        // A job that no worker can decode has no failed run.
        let is_undecodable = |job: &&JobRow| !has_failed(job) && job.code.as_deref() == Some(codes::CODEC);
        let (undecodable, retried) = (delayed.iter().filter(is_undecodable).count(), retries(&delayed));
        let about = |all: u64, some: usize, read: &[JobRow]| all * some as u64 / read.len().max(1) as u64;
        if undecodable * 2 > retried {
            let jobs = about(task.counts.delayed, undecodable, &delayed);
            return Some(Diagnosis::when(task.is_outage(), Some(name), DiagnosisKind::NewerProducer { jobs }));
        }
        let failed: Vec<&JobRow> = delayed.iter().chain(&waiting).filter(has_failed).collect();
        let is_recent = task.fails() || retried * 2 > delayed.len();
        let Some(first) = failed.first().filter(|_| is_recent) else {
            return self.snoozing(task, &delayed).await;
        };
        // Extrapolate to the jobs that were not read.
        let all =
            about(task.counts.delayed, retried, &delayed) + about(task.counts.waiting, retries(&waiting), &waiting);
        let is_large = are_many(failed.len() as u64) && all > task.completed_lately / 10;
        let is_reported = task.is_outage() || !task.completes() || is_large;
        if !is_reported || !task.fails() && self.are_snoozed(name, &failed).await {
            return self.snoozing(task, &delayed).await;
        }
        let kind = DiagnosisKind::JobsRetry {
            retries: failed.len() as u64,
            read: (delayed.len() + waiting.len()) as u64,
            code: first.code.clone().unwrap_or_else(|| "failed".to_owned()),
            message: first.message.clone().unwrap_or_default(),
            last_failed_ago_ms: task.last_failed_at.map(|at| to_ms(ago(task, at))),
            last_completed_ago_ms: task.last_completed_at.map(|at| to_ms(ago(task, at))),
        };
        Some(Diagnosis::when(task.is_outage(), Some(name), kind))
    }

    async fn first_jobs(&self, task: &str, ids: impl Iterator<Item = &JobId>) -> Vec<JobReport> {
        let reads = ids.take(SNOOZED.0).map(|id| self.job(task, id.as_str(), JobValues::None));
        join_all(reads).await.into_iter().filter_map(|read| read.ok().flatten()).collect()
    }

    /// Whether most of these jobs have snoozed, even if earlier runs failed.
    async fn are_snoozed(&self, task: &str, jobs: &[&JobRow]) -> bool {
        let read = self.first_jobs(task, jobs.iter().map(|row| &row.id)).await;
        read.iter().filter(|job| job.snoozed_count > 0).count() * 2 > read.len()
    }

    /// Reports jobs that snooze again and again while none completes, or that a worker snoozes because it cannot start its program.
    async fn snoozing(&self, task: &TaskReport, delayed: &[JobRow]) -> Option<Diagnosis> {
        let name = &*task.task;
        let read = self.first_jobs(name, delayed.iter().map(|row| &row.id)).await;
        let is_recent = |at: SystemTime| ago(task, at) < JUST_NOW;
        let not_started = |job: &JobReport| {
            let progress = job.progress.as_ref().filter(|progress| is_recent(progress.at))?;
            (progress.value == PROGRAM_NOT_STARTED).then(|| progress.message.clone())
        };
        let kind = |read: &[JobReport], snoozing: &[&JobReport], program_error| DiagnosisKind::JobsSnooze {
            read: read.len() as u64,
            snoozing: snoozing.len() as u64,
            first: snoozing.first().map(|job| job.id.to_string()).unwrap_or_default(),
            program_error,
        };
        let broken: Vec<&JobReport> = read.iter().filter(|job| not_started(job).is_some()).collect();
        if let Some(first) = broken.first() {
            let are_most = broken.len() * 2 > read.len() && !task.completes();
            return Some(Diagnosis::when(are_most, Some(name), kind(&read, &broken, not_started(first))));
        }
        let often: Vec<&JobReport> = read.iter().filter(|job| job.snoozed_count >= SNOOZED.1).collect();
        let is_reported = often.len() * 2 > read.len() && !task.completes();
        is_reported.then(|| Diagnosis::note(Some(name), kind(&read, &often, None)))
    }
}
