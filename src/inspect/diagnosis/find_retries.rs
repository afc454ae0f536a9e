//! Finds jobs that are tried again, snooze, cannot be decoded, or lost their payload: it reads some of them.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join_all};

use super::super::Inspector;
use super::super::describe::PROGRAM_NOT_STARTED;
use super::super::filter::JobFilter;
use super::super::job::{JobReport, JobValues};
use super::super::page::JobRow;
use super::super::tasks::TaskReport;
use super::data::DataCondition;
use super::failure::FailureCondition;
use super::find_failures::{ago, are_many, of_broken_off};
use super::finding::Diagnosis;
use super::task_facts::TOGETHER;
use crate::job::failure::codes;
use crate::job::id::JobId;
use crate::job::state::JobState;

/// Of how many tasks the jobs are read.
const TASKS: usize = 50;

/// How many delayed jobs of a task are read, and this many that wait.
const JOBS: usize = 100;

/// How many jobs are read one by one for how often they snoozed, and so often is often.
const SNOOZED: (usize, u32) = (5, 3);

/// What a worker reported of a job within this time still holds.
const JUST_NOW: Duration = Duration::from_secs(60);

/// How many jobs that wait, and as many delayed ones, are read for lost payloads.
const QUEUED: usize = 50;

/// Jobs of a task that wait for another run, as far as they were read.
struct JobsToRetry {
    delayed: Vec<JobRow>,
    waiting: Vec<JobRow>,
}

fn has_failed(job: &&JobRow) -> bool {
    job.failed_attempts > 0
}

impl JobsToRetry {
    /// The jobs after a failed run, the next one first.
    fn failed(&self) -> impl Iterator<Item = &JobRow> {
        self.delayed.iter().chain(&self.waiting).filter(has_failed)
    }

    /// How many of the delayed jobs no worker can decode. None of these has failed.
    fn undecodable(&self) -> usize {
        self.delayed.iter().filter(|job| !has_failed(job) && job.code.as_deref() == Some(codes::CODEC)).count()
    }

    fn delayed_retries(&self) -> usize {
        self.delayed.iter().filter(has_failed).count()
    }

    fn waiting_retries(&self) -> usize {
        self.waiting.iter().filter(has_failed).count()
    }

    /// About how many jobs of the task are tried again, with those that were not read.
    fn about_all(&self, task: &TaskReport) -> u64 {
        let about = |all: u64, some: usize, read: usize| all * some as u64 / read.max(1) as u64;
        about(task.counts.delayed, self.delayed_retries(), self.delayed.len())
            + about(task.counts.waiting, self.waiting_retries(), self.waiting.len())
    }

    fn condition(&self, task: &TaskReport, first: &JobRow) -> FailureCondition {
        FailureCondition::JobsRetry {
            delayed: task.counts.delayed,
            read_delayed: self.delayed.len() as u64,
            delayed_retries: self.delayed_retries() as u64,
            waiting: task.counts.waiting,
            read_waiting: self.waiting.len() as u64,
            waiting_retries: self.waiting_retries() as u64,
            code: first.code.clone().unwrap_or_else(|| "failed".to_owned()),
            message: first.message.clone().unwrap_or_default(),
            is_paused: task.paused.is_some(),
            last_failed_ago: ago(task, task.last_failed_at),
            last_completed_ago: ago(task, task.last_completed_at),
        }
    }
}

/// How much there is to read: recent failures come before jobs that are only delayed.
fn may_fail(task: &TaskReport) -> u64 {
    task.failed_since_completed.saturating_mul(1_000_000).saturating_add(task.counts.delayed)
}

/// The tasks with most of this, and how many others have some.
fn most(tasks: &[TaskReport], of: fn(&TaskReport) -> u64) -> (Vec<&TaskReport>, usize) {
    let mut found: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none() && of(task) > 0).collect();
    found.sort_by_key(|task| Reverse(of(task)));
    let left_out = found.len().saturating_sub(TASKS);
    found.truncate(TASKS);
    (found, left_out)
}

impl Inspector {
    /// What keeps jobs of these tasks from being done, as their jobs show. A task that cannot be read is reported elsewhere.
    pub(super) async fn diagnose_retries(&self, tasks: &[TaskReport]) -> Vec<Diagnosis> {
        let (without, _) = most(tasks, |task| task.without_payload);
        let (delayed, left_out) = most(tasks, may_fail);
        let mut found = Vec::new();
        for some in without.chunks(TOGETHER) {
            found.extend(join_all(some.iter().map(|task| self.without_payload(task))).await.into_iter().flatten());
        }
        found.extend(tasks.iter().filter_map(of_broken_off));
        for some in delayed.chunks(TOGETHER) {
            found.extend(join_all(some.iter().map(|task| self.retries_of(task))).await.into_iter().flatten());
        }
        if left_out > 0 && delayed.last().is_some_and(|least| are_many(may_fail(least))) {
            let tasks = left_out as u64;
            found.push(Diagnosis::note(None, FailureCondition::DelayedJobsNotRead { tasks }));
        }
        found
    }

    /// Jobs without payload: those of them that wait are lost.
    async fn without_payload(&self, task: &TaskReport) -> Option<Diagnosis> {
        let (name, jobs) = (&*task.task, task.without_payload);
        let mut rows = Vec::new();
        for state in [JobState::Waiting, JobState::Delayed] {
            rows.extend(self.jobs(name, &JobFilter::new(state).oldest_first(), None, QUEUED).await.ok()?.jobs);
        }
        let reads = try_join_all(rows.iter().map(|row| self.job(name, row.id.as_str(), JobValues::None))).await.ok()?;
        // Nothing else is known of a job without payload. A job that was done meanwhile is not there either.
        let lost: Vec<&JobRow> = rows.iter().zip(reads).filter(|(_, job)| job.is_none()).map(|(row, _)| row).collect();
        let condition = DataCondition::JobsWithoutPayload {
            jobs,
            read: rows.len() as u64,
            waiting: (lost.len() as u64).min(jobs),
            first: lost.first().map(|row| row.id.to_string()),
        };
        Some(Diagnosis::when(!lost.is_empty(), Some(name), condition))
    }

    /// Why jobs of the task are delayed that may never be done, or wait again after a failed run.
    async fn retries_of(&self, task: &TaskReport) -> Option<Diagnosis> {
        let name = &*task.task;
        let read = async |filter: JobFilter| self.jobs(name, &filter, None, JOBS).await.map(|page| page.jobs).ok();
        // The next ones to be tried again, and those that came back to the end of their list.
        let delayed = read(JobFilter::new(JobState::Delayed).oldest_first()).await?;
        let queued = JobsToRetry { delayed, waiting: read(JobFilter::new(JobState::Waiting)).await? };
        let (undecodable, delayed_retries) = (queued.undecodable(), queued.delayed_retries());
        if undecodable * 2 > delayed_retries {
            let jobs = task.counts.delayed * undecodable as u64 / queued.delayed.len().max(1) as u64;
            return Some(Diagnosis::when(task.is_outage(), Some(name), FailureCondition::NewerProducer { jobs }));
        }
        let failed: Vec<&JobRow> = queued.failed().collect();
        let is_recent = task.fails() || delayed_retries * 2 > queued.delayed.len();
        let Some(first) = failed.first().filter(|_| is_recent) else {
            return self.snoozing(task, &queued.delayed).await;
        };
        let is_large = are_many(failed.len() as u64) && queued.about_all(task) > task.completed_lately / 10;
        let is_reported = task.is_outage() || !task.completes() || is_large;
        if !is_reported || !task.fails() && self.are_snoozed(name, &failed).await {
            return self.snoozing(task, &queued.delayed).await;
        }
        Some(Diagnosis::when(task.is_outage(), Some(name), queued.condition(task, first)))
    }

    async fn first_jobs(&self, task: &str, ids: impl Iterator<Item = &JobId>) -> Vec<JobReport> {
        let reads = ids.take(SNOOZED.0).map(|id| self.job(task, id.as_str(), JobValues::None));
        join_all(reads).await.into_iter().filter_map(|read| read.ok().flatten()).collect()
    }

    /// Whether most of these jobs have snoozed, whatever failed before.
    async fn are_snoozed(&self, task: &str, jobs: &[&JobRow]) -> bool {
        let read = self.first_jobs(task, jobs.iter().map(|row| &row.id)).await;
        read.iter().filter(|job| job.snoozed_count > 0).count() * 2 > read.len()
    }

    /// Jobs that snooze again and again while none completes, or that a worker snoozes since it cannot start its program.
    async fn snoozing(&self, task: &TaskReport, delayed: &[JobRow]) -> Option<Diagnosis> {
        let name = &*task.task;
        let read = self.first_jobs(name, delayed.iter().map(|row| &row.id)).await;
        let is_recent = |at: SystemTime| task.as_of.duration_since(at).unwrap_or_default() < JUST_NOW;
        let not_started = |job: &JobReport| {
            let progress = job.progress.as_ref().filter(|progress| is_recent(progress.at))?;
            (progress.value == PROGRAM_NOT_STARTED).then(|| progress.message.clone())
        };
        let broken: Vec<String> = read.iter().filter_map(not_started).collect();
        if let Some(message) = broken.first().cloned() {
            let are_most = broken.len() * 2 > read.len() && !task.completes();
            return Some(Diagnosis::when(are_most, Some(name), FailureCondition::ProgramNotStarted { message }));
        }
        let often: Vec<&JobReport> = read.iter().filter(|job| job.snoozed_count >= SNOOZED.1).collect();
        let first = often.first().filter(|_| often.len() * 2 > read.len() && !task.completes())?;
        let condition = FailureCondition::JobsSnooze {
            delayed: task.counts.delayed,
            read: read.len() as u64,
            snoozing: often.len() as u64,
            most: often.iter().map(|job| job.snoozed_count).max().unwrap_or_default(),
            first: first.id.to_string(),
        };
        Some(Diagnosis::note(Some(name), condition))
    }
}
