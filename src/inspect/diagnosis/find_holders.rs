//! Finds the workers that hold jobs and are not live.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::super::Inspector;
use super::super::holders::{Holder, HolderReport};
use super::super::tasks::TaskReport;
use super::super::waits::Worked;
use super::super::workers::WorkerReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::lost_holder::{LostHolder, Rescuer};
use super::task_facts::{DEFAULT_INTERVAL, LONG_WAIT, RECENT, TOGETHER, ago, has_task, has_waited};
use crate::error::Error;
use crate::join::try_join_all;
use crate::unix_time::to_ms;
use crate::worker_id::WorkerId;

/// The most lost workers of a task that are reported one by one.
const REPORTED: usize = 3;

/// The most unlisted holders that are looked up.
const LOOKED_UP: usize = 100;

/// A worker that claims jobs this long after its last presence cannot update it. Only claims within the second time count.
const CLAIMED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

impl TaskReport {
    /// Whether silent jobs wait for a person: claimed, running and finalizing ones.
    fn person_phases(&self) -> [bool; 3] {
        Worked::for_people(self.options.values.get("grace").map_or("", String::as_str))
    }

    /// Whether silent jobs wait for a person in any phase.
    #[must_use]
    pub fn waits_for_person(&self) -> bool {
        self.person_phases().contains(&true)
    }

    /// Whether silent running jobs wait for a person.
    pub(super) fn runs_wait_for_person(&self) -> bool {
        self.person_phases()[1]
    }
}

impl Holder {
    /// Whether it claimed a job recently and well after its last presence. Such a worker runs, but cannot update its presence.
    #[must_use]
    pub fn claims_without_presence(&self, worker: &WorkerReport, now: SystemTime) -> bool {
        let (later, recent) = CLAIMED;
        let is_seen = worker.last_seen_at > SystemTime::UNIX_EPOCH && worker.death.is_none();
        let is_later = self.last_claimed_at.duration_since(worker.last_seen_at).is_ok_and(|after| after > later);
        // A claim time in the future means that a clock went back. It proves nothing.
        let is_recent = match now.duration_since(self.last_claimed_at) {
            Ok(ago) => ago < recent,
            Err(ahead) => ahead.duration() < later,
        };
        is_seen && is_later && is_recent
    }
}

impl WorkerReport {
    /// Whether it holds jobs according to these reports, and is not live.
    #[must_use]
    pub fn leaves_jobs(&self, holders: &[HolderReport]) -> bool {
        let holds = |report: &HolderReport| report.holders.iter().any(|holder| holder.worker == self.worker);
        !self.state.is_live() && holders.iter().any(holds)
    }

    /// Whether its next presence is late. If one still comes, the worker is alive.
    #[must_use]
    pub fn is_presence_overdue(&self, now: SystemTime) -> bool {
        !self.state.is_live() || now.duration_since(self.last_seen_at).is_ok_and(|since| since > CLAIMED.0)
    }

    /// Corrects the number of jobs that it holds from these reports. Its own figures are some seconds old, and remain when it dies.
    pub fn correct_held(&mut self, holders: &[HolderReport]) {
        for its in &mut self.tasks {
            if let Some(report) = holders.iter().find(|report| report.is_whole && report.task == its.task) {
                let own = report.holders.iter().find(|holder| holder.worker == self.worker);
                its.held = own.map_or(0, |holder| holder.jobs);
            }
        }
    }
}

pub(super) fn find<'a>(worker: &WorkerId, workers: &'a [WorkerReport]) -> Option<&'a WorkerReport> {
    workers.iter().find(|known| known.worker == *worker)
}

/// What is known of a holder that is not live.
pub(super) fn lost_holder(id: &WorkerId, known: Option<&WorkerReport>, now: SystemTime) -> LostHolder {
    LostHolder {
        worker: id.clone(),
        is_known: known.is_some(),
        host: known.map_or_else(String::new, |worker| worker.host.clone()),
        pid: known.and_then(|worker| worker.pid),
        is_contained: known.is_some_and(|worker| worker.is_contained),
        death: known.and_then(|worker| worker.death.as_ref()).map(|death| death.proof),
        has_stopped: known.is_some_and(|worker| worker.stopped_at.is_some()),
        seen_ago_ms: known.map_or(0, |worker| to_ms(now.duration_since(worker.last_seen_at).unwrap_or_default())),
    }
}

/// Reports that a worker which is not live holds jobs of the task.
pub(super) fn held_by_lost(
    task: &TaskReport,
    holder: &Holder,
    known: Option<&WorkerReport>,
    is_exact: bool,
) -> Diagnosis {
    let interval = task.parts.iter().filter_map(|part| part.interval).max().unwrap_or(DEFAULT_INTERVAL);
    let rescuer = match task.live_workers {
        _ if task.runs_wait_for_person() => Rescuer::Person,
        0 if task.knows_workers => Rescuer::NextWorker,
        _ => Rescuer::LiveWorkers,
    };
    let kind = DiagnosisKind::LostWorker {
        jobs: holder.jobs,
        is_exact,
        holder: lost_holder(&holder.worker, known, task.as_of),
        more: 0,
        rescuer: Some(rescuer),
        within_ms: to_ms(interval * 2),
    };
    Diagnosis::risk(Some(&task.task), kind)
}

/// Reports that a worker holds jobs and runs, but cannot update its presence. `None` if that is not so.
pub(super) fn held_by_mute(
    task: &str,
    holder: &Holder,
    known: Option<&WorkerReport>,
    now: SystemTime,
) -> Option<Diagnosis> {
    let worker = known.filter(|worker| holder.claims_without_presence(worker, now))?;
    let ago = |at: SystemTime| to_ms(now.duration_since(at).unwrap_or_default());
    let kind = DiagnosisKind::MuteWorker {
        jobs: holder.jobs,
        worker: holder.worker.clone(),
        claimed_ago_ms: ago(holder.last_claimed_at),
        seen_ago_ms: ago(worker.last_seen_at),
    };
    Some(Diagnosis::risk(Some(task), kind))
}

/// The workers that hold jobs of the task and are not live, those with the most jobs first.
pub(super) fn of_holders(task: &TaskReport, report: &HolderReport, workers: &[WorkerReport]) -> Vec<Diagnosis> {
    let (mut lost, mut mute) = (Vec::new(), Vec::new());
    for holder in &report.holders {
        let known = find(&holder.worker, workers);
        match held_by_mute(&task.task, holder, known, task.as_of) {
            _ if known.is_some_and(|worker| worker.state.is_live()) => {}
            Some(own) => mute.push(own),
            None => lost.push((holder, known)),
        }
    }
    lost.sort_by(|(one, _), (other, _)| other.jobs.cmp(&one.jobs).then_with(|| one.worker.cmp(&other.worker)));
    // A line that counts one more worker would be as long as the line about that worker.
    let rest = if lost.len() > REPORTED + 1 { lost.split_off(REPORTED) } else { Vec::new() };
    let own = |(holder, known): &(&Holder, Option<&WorkerReport>)| held_by_lost(task, holder, *known, report.is_whole);
    let mut found: Vec<Diagnosis> = lost.iter().map(own).collect();
    if let Some((first, known)) = rest.first() {
        let jobs = rest.iter().map(|(holder, _)| holder.jobs).sum();
        let mut all = held_by_lost(task, &Holder { jobs, ..(*first).clone() }, *known, report.is_whole);
        if let DiagnosisKind::LostWorker { more, .. } = &mut all.kind {
            *more = rest.len() as u64 - 1;
        }
        found.push(all);
    }
    found.extend(mute.into_iter().take(REPORTED));
    found
}

impl Inspector {
    /// The holders of the jobs of tasks where something may be wrong. Corrects how many jobs the workers report to hold.
    pub(super) async fn suspicious_holders(
        &self,
        tasks: &[TaskReport],
        workers: &mut Vec<WorkerReport>,
    ) -> Result<Vec<HolderReport>, Error> {
        let is_asked = |task: &&TaskReport| {
            let is_lost = |worker: &WorkerReport| {
                has_task(worker, &task.task) && ago(task, worker.last_seen_at) < RECENT && !worker.state.is_live()
            };
            let may_be_wrong = task.live_workers == 0 || has_waited(task, LONG_WAIT) || workers.iter().any(is_lost);
            task.counts.held_total() > 0 && may_be_wrong
        };
        let asked: Vec<&TaskReport> = tasks.iter().filter(is_asked).collect();
        let mut found = Vec::with_capacity(asked.len());
        for some in asked.chunks(TOGETHER) {
            found.extend(try_join_all(some.iter().map(|task| self.lock_holders(&task.task))).await?);
        }
        let unknown = self.look_up_holders_of(&found, workers).await?;
        // Report only holders that were looked up.
        for report in found.iter_mut().filter(|_| !unknown.is_empty()) {
            let before = report.holders.len();
            report.holders.retain(|holder| !unknown.contains(holder.worker.as_str()));
            report.is_whole &= report.holders.len() == before;
        }
        workers.iter_mut().for_each(|worker| worker.correct_held(&found));
        let is_idle = |name: &str| {
            tasks.iter().any(|task| task.task == name && task.fault.is_none() && task.counts.held_total() == 0)
        };
        let lost = workers.iter_mut().filter(|worker| !worker.state.is_live());
        for its in lost.flat_map(|worker| &mut worker.tasks).filter(|its| is_idle(&its.task)) {
            its.held = 0;
        }
        Ok(found)
    }

    /// Looks up unlisted holders, such as one of many that died, or one that has just started, and adds them. Returns those for which that
    /// failed.
    async fn look_up_holders_of(
        &self,
        found: &[HolderReport],
        workers: &mut Vec<WorkerReport>,
    ) -> Result<BTreeSet<String>, Error> {
        let missing =
            found.iter().flat_map(|report| &report.holders).filter(|holder| find(&holder.worker, workers).is_none());
        let missing: BTreeSet<String> = missing.map(|holder| holder.worker.to_string()).collect();
        let mut unknown: BTreeSet<String> = missing.iter().skip(LOOKED_UP).cloned().collect();
        for worker in missing.into_iter().take(LOOKED_UP) {
            match self.worker(&worker).await {
                // The cluster node of the presence may be unreachable.
                Err(e) if e.is_retryable() => drop(unknown.insert(worker)),
                known => workers.extend(known?),
            }
        }
        Ok(unknown)
    }
}
