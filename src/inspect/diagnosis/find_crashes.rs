//! Finds what the last stalls show: jobs recovered from lost workers, poison suspects, and jobs that will fail when recovered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::super::Inspector;
use super::super::filter::JobFilter;
use super::super::holders::Holder;
use super::super::job::JobValues;
use super::super::page::JobRow;
use super::super::poison::PoisonSuspect;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::find_holders::find;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::{Seen, TOGETHER, claimers, if_readable};
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::stall::action::{StallAction, StalledEvent};
use crate::unix_time::to_ms;
use crate::worker_id::WorkerId;

/// A poison suspect is reported for this long after the last death.
const SUSPECT_FOR: Duration = Duration::from_secs(3600);

/// A recovery is reported for this long.
pub(super) const RECOVERED_FOR: Duration = Duration::from_secs(600);

/// How many jobs that would fail are looked up, since a job with a requested cancel does not fail.
const LOOKED_UP: usize = 100;

/// For how many suspects a requested cancel is looked up.
const SUSPECTS: usize = 20;

/// How many running jobs are read to find those that would fail.
const RUNNING: usize = 1000;

/// The stalls of the last minutes, and some earlier ones.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecentStalls {
    /// The stalls.
    pub stalls: Vec<StalledEvent>,
    /// The tasks whose stalls of the last minutes are incomplete.
    pub partial: BTreeSet<String>,
}

impl TaskReport {
    /// Whether the next stall of a job of the task makes it fail.
    pub(super) fn is_last_run(&self, max_count: Option<u32>, stalled_count: u32) -> bool {
        let option = |name: &str| self.options.values.get(name).map_or("", String::as_str);
        let is_unset = option("onCrash") == "retry" && option("maxCountSet") != "1";
        let of_task = if is_unset { None } else { option("maxCount").parse().ok() };
        option("onCrash") == "fail" || max_count.or(of_task).is_some_and(|most| stalled_count >= most)
    }
}

/// What the last stalls show. See [`Inspector::diagnose_crashes`].
#[derive(Clone, Debug, Default)]
pub struct CrashDiagnoses {
    /// Poison suspects that may take down the next worker.
    pub(super) at_large: Vec<Diagnosis>,
    /// Poison suspects that failed.
    pub(super) failed: Vec<Diagnosis>,
    /// Jobs that will fail when they are recovered.
    pub(super) will_fail: Vec<Diagnosis>,
    pub(super) others: Vec<Diagnosis>,
}

impl StalledEvent {
    /// Whether its worker was seen after the stall, or counts as live: the worker did not die, or its death is not known yet.
    #[must_use]
    pub fn was_survived(&self, workers: &[WorkerReport]) -> bool {
        let held = self.worker.as_ref().and_then(|worker| find(worker, workers));
        held.is_some_and(|worker| worker.last_seen_at > self.at || worker.state.is_live())
    }
}

/// The diagnosis of a task's suspects: `all` of them, and those that are `at_large`.
pub(super) fn poison_suspects(
    all: &[&PoisonSuspect],
    at_large: &[&PoisonSuspect],
    is_paused: bool,
    has_workers: bool,
) -> DiagnosisKind {
    let top = PoisonSuspect::foremost(all).filter(|top| at_large.iter().any(|suspect| suspect.id == top.id));
    let are_alone = at_large.iter().all(|suspect| suspect.alone == suspect.deaths);
    DiagnosisKind::PoisonSuspects {
        jobs: at_large.iter().map(|suspect| suspect.id.to_string()).collect(),
        others: (all.len() - at_large.len()) as u64,
        always_alone: are_alone && (top.is_none() || at_large.len() == 1),
        top: top.map(|suspect| suspect.id.to_string()),
        is_paused,
        has_workers,
    }
}

fn by_task<'a>(suspects: impl Iterator<Item = &'a PoisonSuspect>) -> BTreeMap<&'a str, Vec<&'a PoisonSuspect>> {
    let mut tasks: BTreeMap<&str, Vec<&PoisonSuspect>> = BTreeMap::new();
    for suspect in suspects {
        tasks.entry(&suspect.task).or_default().push(suspect);
    }
    tasks
}

/// What was recovered recently. A person may have missed it.
pub(super) fn recovered(recent: &RecentStalls, now: SystemTime) -> Vec<Diagnosis> {
    let is_recent = |stall: &&StalledEvent| now.duration_since(stall.at).unwrap_or_default() < RECOVERED_FOR;
    let mut tasks: BTreeMap<&str, Vec<&StalledEvent>> = BTreeMap::new();
    for stall in recent.stalls.iter().filter(is_recent) {
        tasks.entry(&stall.task).or_default().push(stall);
    }
    let report = |(task, stalls): (&str, Vec<&StalledEvent>)| {
        // A job may have been recovered more than once. Only the last time counts.
        let mut jobs: BTreeMap<&str, &StalledEvent> = BTreeMap::new();
        for stall in &stalls {
            let last = jobs.entry(stall.id.as_str()).or_insert(stall);
            if (last.at, last.stalled_count) < (stall.at, stall.stalled_count) {
                *last = stall;
            }
        }
        let count = |action: StallAction| jobs.values().filter(|stall| stall.action == action).count() as u64;
        let workers: BTreeSet<&WorkerId> = stalls.iter().filter_map(|stall| stall.worker.as_ref()).collect();
        let last = stalls.iter().map(|stall| stall.at).max().unwrap_or(now);
        let kind = DiagnosisKind::JobsRecovered {
            jobs: jobs.len() as u64,
            is_exact: !recent.partial.contains(task),
            workers: workers.into_iter().cloned().collect(),
            failed: count(StallAction::Failed),
            cancelled: count(StallAction::Cancelled),
            last_ago_ms: to_ms(now.duration_since(last).unwrap_or_default()),
        };
        Diagnosis::note(Some(task), kind)
    };
    tasks.into_iter().map(report).collect()
}

impl Inspector {
    /// Jobs that were held when two or more workers died, according to these stalls and to pending ones; and jobs that will fail.
    pub(super) async fn crashes(&self, recent: &RecentStalls, seen: Seen<'_>) -> Result<CrashDiagnoses, Error> {
        let (to_come, now, workers) = (self.stalls_of_the_dead(seen).await?, self.now().await, seen.workers);
        let stalls = recent.stalls.iter().chain(&to_come);
        let deaths = stalls.filter(|stall| !stall.was_survived(workers));
        let is_recent = |suspect: &PoisonSuspect| now.duration_since(suspect.last_at).unwrap_or_default() < SUSPECT_FOR;
        let mut found = PoisonSuspect::among(deaths);
        // Without a live worker, a suspect waits for the next one, for any time.
        found.retain(|suspect| is_recent(suspect) || claimers(&suspect.task, workers).next().is_none());
        if_readable(self.look_up_suspects(&mut found).await)?;
        let cancelled = self.cancelled_suspects(&found).await;
        let at_large = by_task(found.iter().filter(|suspect| {
            suspect.is_at_large() && !cancelled.contains(&(suspect.task.clone(), suspect.id.to_string()))
        }));
        let report = |(task, suspects): (&str, Vec<&PoisonSuspect>)| {
            let all: Vec<&PoisonSuspect> = found.iter().filter(|suspect| suspect.task == task).collect();
            let is_paused = seen.tasks.iter().any(|report| report.task == task && report.paused.is_some());
            let has_workers = claimers(task, workers).next().is_some();
            // Without a live worker, the next one may die as well. A paused task starts no job.
            let kind = poison_suspects(&all, &suspects, is_paused, has_workers);
            Diagnosis::when(!is_paused && !has_workers, Some(task), kind)
        };
        let has_failed = |suspect: &&PoisonSuspect| {
            suspect.state == Some(JobState::Failed) && suspect.unexplained > 1 && is_recent(suspect)
        };
        let failed = by_task(found.iter().filter(has_failed)).into_iter().map(|(task, suspects)| {
            let jobs = suspects.iter().map(|suspect| suspect.id.to_string()).collect();
            Diagnosis::note(Some(task), DiagnosisKind::FailedSuspects { jobs })
        });
        let (at_large, failed) = (at_large.into_iter().map(report).collect(), failed.collect());
        let will_fail = self.jobs_that_will_fail(seen).await?;
        Ok(CrashDiagnoses { at_large, failed, will_fail, others: Vec::new() })
    }

    /// The suspects with a requested cancel. They are cancelled when they are recovered, so they take down no worker.
    async fn cancelled_suspects(&self, suspects: &[PoisonSuspect]) -> BTreeSet<(String, String)> {
        let mut cancelled = BTreeSet::new();
        for suspect in suspects.iter().filter(|suspect| suspect.is_at_large()).take(SUSPECTS) {
            if self.is_cancel_requested(&suspect.task, &suspect.id).await {
                cancelled.insert((suspect.task.clone(), suspect.id.to_string()));
            }
        }
        cancelled
    }

    async fn is_cancel_requested(&self, task: &str, id: &JobId) -> bool {
        let job = self.job(task, id.as_str(), JobValues::None).await;
        job.is_ok_and(|job| job.is_some_and(|job| job.cancel_requested.is_some()))
    }

    /// The pending stalls of jobs that dead workers hold. Perhaps no live worker is left to report them.
    async fn stalls_of_the_dead(&self, seen: Seen<'_>) -> Result<Vec<StalledEvent>, Error> {
        let is_dead = |holder: &Holder| find(&holder.worker, seen.workers).is_some_and(|worker| worker.death.is_some());
        let mut stalls = Vec::new();
        for report in seen.holders.iter().filter(|report| report.holders.iter().any(is_dead)).take(TOGETHER) {
            stalls.extend(if_readable(self.stalls_to_come(&report.task).await)?);
        }
        Ok(stalls)
    }

    /// Jobs that fail when they are recovered from workers that are not live. The next worker that starts recovers them.
    async fn jobs_that_will_fail(&self, seen: Seen<'_>) -> Result<Vec<Diagnosis>, Error> {
        let mut found = Vec::new();
        for report in seen.holders {
            let Some(task) = seen.tasks.iter().find(|task| task.task == report.task) else { continue };
            let may_live = |holder: &Holder| {
                find(&holder.worker, seen.workers)
                    .is_some_and(|known| known.state.is_live() || holder.claims_without_presence(known, task.as_of))
            };
            let lost = report.holders.iter().filter(|holder| !may_live(holder)).map(|holder| holder.worker.as_str());
            let lost: BTreeSet<&str> = lost.collect();
            let jobs = if lost.is_empty() { 0 } else { self.would_fail(task, |id| lost.contains(id)).await? };
            found.extend((jobs > 0).then(|| will_fail(task, jobs, None)));
        }
        Ok(found)
    }

    /// How many jobs of these workers would fail if they were recovered. Reads the first 1,000 running jobs.
    pub(super) async fn would_fail(&self, task: &TaskReport, is_theirs: impl Fn(&str) -> bool) -> Result<u64, Error> {
        let page = self.jobs(&task.task, &JobFilter::new(JobState::Running), None, RUNNING).await;
        let jobs = if_readable(page.map(|page| page.jobs))?;
        let is_last = |job: &&JobRow| {
            let is_theirs = job.worker.as_ref().is_some_and(|holder| is_theirs(holder.as_str()));
            is_theirs && task.is_last_run(job.max_count, job.stalled_count)
        };
        let last: Vec<&JobRow> = jobs.iter().filter(is_last).collect();
        let mut cancelled = 0;
        for job in last.iter().take(LOOKED_UP) {
            cancelled += u64::from(self.is_cancel_requested(&task.task, &job.id).await);
        }
        Ok(last.len() as u64 - cancelled)
    }
}

/// Reports that this many jobs fail when they are recovered.
pub(super) fn will_fail(task: &TaskReport, jobs: u64, first: Option<String>) -> Diagnosis {
    let by_person = task.runs_wait_for_person();
    let has_live_workers = task.live_workers > 0 || !task.knows_workers;
    let kind = DiagnosisKind::JobsWillFail { jobs, first, by_person, has_live_workers };
    // If they wait for a person, no worker recovers them.
    Diagnosis::when(!by_person, Some(&task.task), kind)
}
