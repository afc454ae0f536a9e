//! Finds what is wrong with a task, from its report and its workers.

use std::time::Duration;

use super::super::holders::{Holder, HolderReport};
use super::super::tasks::{PartitionReport, TaskReport};
use super::super::workers::{DetectorReport, WorkerReport, WorkerState, WorkerTask};
use super::find_data::{of_losses, unreadable};
use super::find_failures::{of_failures, of_hooks};
use super::find_holders::{find, of_holders};
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::lost_holder::LostSlots;
use super::task_facts::{DEFAULT_INTERVAL, LONG_WAIT, RECENT, ago, claimers, has_task, has_waited, waiting};
use super::texts;
use crate::stall::cadence;
use crate::unix_time::to_ms;

/// While jobs are held, an epoch of this many intervals is overdue. A healthy one takes one interval, plus a third until the next heartbeat.
const OVERDUE_EPOCH: u32 = 3;

/// A wait this long while every slot is taken is reported.
const CROWDED: Duration = Duration::from_secs(300);

/// If no slot became free for this long, nor for the timeout of a run, handlers probably hang.
const HUNG: Duration = Duration::from_secs(1800);

/// A key that has been full for this long is reported.
const FULL_FOR_LONG: Duration = Duration::from_secs(3600);

/// A deploy replaces workers within this time.
const DEPLOY: Duration = Duration::from_secs(15);

/// Reports the pause of a task.
pub(super) fn paused(task: &TaskReport) -> Option<Diagnosis> {
    let pause = task.paused.as_ref()?;
    let waiting = waiting(task);
    let kind = DiagnosisKind::Paused {
        by: pause.by.clone(),
        reason: pause.reason.clone(),
        waiting,
        paused_partitions: pause.partitions as u64,
        partitions: task.parts.len() as u64,
        ago_ms: to_ms(ago(task, pause.at)),
    };
    Some(Diagnosis::when(waiting > 0, Some(&task.task), kind))
}

/// Reports that no live worker has the task.
pub(super) fn no_worker(task: &TaskReport, workers: &[WorkerReport]) -> DiagnosisKind {
    none_claims(task, workers, false)
}

/// Reports that no live worker has the task, or that all are stopping or quiet.
pub(super) fn none_claims(task: &TaskReport, workers: &[WorkerReport], are_stopping: bool) -> DiagnosisKind {
    let (delayed, last) = (task.counts.delayed - task.due.min(task.counts.delayed), task.options.declared_by.clone());
    let is_quiet = |worker: &&WorkerReport| worker.state == WorkerState::Quiet && has_task(worker, &task.task);
    let quiet = workers.iter().find(is_quiet).map(|worker| worker.worker.clone());
    let finalizing = task.counts.finalizing;
    let own = workers.iter().filter(|worker| has_task(worker, &task.task)).map(|worker| worker.last_seen_at);
    let gone_ms = own.max().map(|seen| to_ms(ago(task, seen)));
    DiagnosisKind::NoWorker { waiting: waiting(task), delayed, finalizing, are_stopping, quiet, last, gone_ms }
}

/// What is wrong with a task. `holders` are those of [`suspicious_holders`](super::super::Inspector::suspicious_holders).
pub(super) fn of_task(task: &TaskReport, holders: Option<&HolderReport>, workers: &[WorkerReport]) -> Vec<Diagnosis> {
    if task.is_unreachable {
        // Such tasks are reported together.
        return Vec::new();
    }
    if let Some(unreadable) = unreadable(task) {
        return vec![unreadable];
    }
    let mut found = Vec::new();
    let own = holders.map_or(&[][..], |report| &report.holders);
    found.extend(of_workers(task, own, workers));
    if task.unplaced > 0 {
        found.push(Diagnosis::risk(
            Some(&task.task),
            DiagnosisKind::JobsWithoutPlace { jobs: task.unplaced, outcome: None },
        ));
    }
    found.extend(stopping(task, workers));
    found.extend(not_claimed(task, workers));
    found.extend(paused(task));
    found.extend(holders.iter().flat_map(|report| of_holders(task, report, workers)));
    found.extend(of_sweeps(task, workers));
    found.extend(of_parked(task));
    found.extend(full_for_long(task));
    let is_whole = holders.is_none_or(|report| report.is_whole);
    if !is_whole {
        let (read, held) = (own.iter().map(|holder| holder.jobs).sum(), task.counts.held_total());
        found.push(Diagnosis::note(Some(&task.task), DiagnosisKind::HoldersNotRead { read, held }));
    }
    let lost_slots = held_by_lost_runs(task, workers);
    if lost_slots.is_none() && is_whole {
        found.extend(crowded(task, own, workers));
    }
    found.extend(lost_slots);
    found.extend(of_failures(task));
    found.extend(of_hooks(task));
    found.extend(of_losses(task));
    found
}

/// Reports that no live worker has the task, if that is known.
fn of_workers(task: &TaskReport, holders: &[Holder], workers: &[WorkerReport]) -> Option<Diagnosis> {
    let name = &*task.task;
    // A worker that runs but cannot update its presence is reported as a holder.
    let works = |holder: &Holder| {
        find(&holder.worker, workers).is_some_and(|worker| holder.claims_without_presence(worker, task.as_of))
    };
    if task.live_workers > 0 || !task.knows_workers || holders.iter().any(works) {
        return None;
    }
    let own = || workers.iter().filter(|worker| has_task(worker, name));
    if waiting(task) > 0 || task.counts.finalizing > 0 {
        let has_just_stopped = own().any(|worker| worker.stopped_at.is_some_and(|at| ago(task, at) < DEPLOY));
        return Some(Diagnosis::when(!has_just_stopped, Some(name), no_worker(task, workers)));
    }
    let last = own().max_by_key(|worker| worker.last_seen_at).filter(|_| task.counts.held_total() == 0);
    let is_lost = last.is_some_and(|last| last.stopped_at.is_none() && ago(task, last.last_seen_at) < RECENT);
    let is_reported = is_lost || task.counts.delayed > task.due;
    is_reported.then(|| Diagnosis::note(Some(name), no_worker(task, workers)))
}

/// Reports that jobs wait while all workers of the task are stopping or quiet.
fn stopping(task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    let claims = claimers(&task.task, workers).next().is_some();
    if task.live_workers == 0 || claims || !has_waited(task, DEPLOY) {
        return None;
    }
    let has_just_claimed = task.last_claimed_at.is_some_and(|at| ago(task, at) < DEPLOY);
    Some(Diagnosis::when(!has_just_claimed, Some(&task.task), none_claims(task, workers, true)))
}

/// Reports that jobs wait in some partitions and none is claimed, although slots are free.
fn not_claimed(task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    if !has_waited(task, LONG_WAIT) || !claimers(&task.task, workers).any(|worker| worker.has_room(&task.task)) {
        return None;
    }
    let is_stuck = |part: &&PartitionReport| {
        let is_idle = part.last_claimed_at.is_none_or(|at| ago(task, at) >= LONG_WAIT);
        part.limit.is_none() && part.next_waiting_age.is_some_and(|age| age >= LONG_WAIT) && is_idle
    };
    let stuck: Vec<&PartitionReport> = task.parts.iter().filter(is_stuck).collect();
    let first = stuck.iter().max_by_key(|part| part.next_waiting_age)?;
    let kind = DiagnosisKind::JobsNotClaimed {
        waiting: waiting(task),
        stuck: stuck.len() as u64,
        partitions: task.parts.len() as u64,
        waited_ms: to_ms(first.next_waiting_age.unwrap_or_default()),
    };
    Some(Diagnosis::risk(Some(&task.task), kind))
}

/// Reports that held jobs have not been swept for several intervals.
fn of_sweeps(task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    if task.counts.held_total() == 0 || task.live_workers == 0 {
        return None;
    }
    let name = &*task.task;
    let watches = || {
        let live = workers.iter().filter(|worker| worker.state.is_live()).flat_map(|worker| &worker.tasks);
        live.filter(|its| its.task == name).flat_map(|its| &its.watches)
    };
    let is_overdue = |part: &PartitionReport| {
        let interval = part.interval.unwrap_or(DEFAULT_INTERVAL);
        let epoch = part.epoch_at.map_or(Duration::ZERO, |at| ago(task, at));
        // After an outage the watches begin again. A worker that has just started has not reported its watch yet.
        let is_new = |watch: &DetectorReport| ago(task, watch.since) < interval * 2;
        let has_started = |worker: &WorkerReport| worker.started_at.is_some_and(|at| ago(task, at) < interval * 2);
        epoch > interval * OVERDUE_EPOCH && !watches().any(is_new) && !claimers(name, workers).any(has_started)
    };
    let part = task.parts.iter().filter(|part| is_overdue(part)).min_by_key(|part| part.epoch_at)?;
    let ago_ms = to_ms(part.epoch_at.map_or(Duration::ZERO, |at| ago(task, at)));
    Some(Diagnosis::risk(Some(name), DiagnosisKind::SweepOverdue { ago_ms }))
}

/// Reports silent jobs that are parked for a person.
fn of_parked(task: &TaskReport) -> Option<Diagnosis> {
    let jobs: u64 = task.parts.iter().map(|part| part.parked).sum();
    let is_parked = jobs > 0 && task.waits_for_person();
    is_parked.then(|| Diagnosis::risk(Some(&task.task), DiagnosisKind::JobsParked { jobs }))
}

/// Reports a key that has been full or paused for long: none of its jobs has ended.
fn full_for_long(task: &TaskReport) -> Option<Diagnosis> {
    let lanes = task.lanes?;
    let full_for = ago(task, lanes.full_since?);
    let kind = DiagnosisKind::KeyFull { full: lanes.full, ago_ms: to_ms(full_for) };
    (full_for >= FULL_FOR_LONG).then(|| Diagnosis::note(Some(&task.task), kind))
}

/// Reports that all slots have been taken for long. Handlers may hang, or there is more work than the workers can do.
fn crowded(task: &TaskReport, holders: &[Holder], workers: &[WorkerReport]) -> Option<Diagnosis> {
    let name = &*task.task;
    let mut claimers = claimers(name, workers).peekable();
    let is_full = claimers.peek().is_some() && claimers.all(|worker| !worker.has_room(name));
    if !has_waited(task, CROWDED) || !is_full {
        return None;
    }
    let idle = ago(task, holders.iter().map(|holder| holder.last_claimed_at).max().or(task.last_claimed_at)?);
    let timeout =
        task.options.values.get("timeoutMs").and_then(|ms| ms.parse().ok()).map_or(HUNG, Duration::from_millis);
    let oldest = holders.iter().map(|holder| holder.first_claimed_at).min();
    let kind = DiagnosisKind::SlotsTaken {
        waiting: waiting(task),
        slots: (task.counts.claimed + task.counts.running >= task.slots).then_some(task.slots),
        waited_ms: task.next_waiting_age.map(to_ms),
        // After a shorter time, jobs are still claimed as slots become free.
        idle_ms: (idle >= LONG_WAIT).then(|| to_ms(idle)),
        oldest_run_ms: oldest.map(|at| to_ms(ago(task, at))),
    };
    Some(Diagnosis::when(idle > HUNG.max(timeout), Some(name), kind))
}

/// Reports that runs which lost their jobs hold slots while jobs wait.
fn held_by_lost_runs(task: &TaskReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    let interval = task.parts.iter().filter_map(|part| part.interval).max().unwrap_or(DEFAULT_INTERVAL);
    let live = workers.iter().filter(|worker| worker.state == WorkerState::Live);
    let claimers: Vec<(&WorkerReport, &WorkerTask)> =
        live.filter_map(|worker| Some((worker, worker.tasks.iter().find(|its| its.task == task.task)?))).collect();
    let has_room = claimers.iter().any(|(worker, _)| worker.has_room(&task.task));
    if waiting(task) == 0 || task.paused.is_some() || has_room {
        return None;
    }
    let is_long = |its: &WorkerTask| its.last_lost_at.is_some_and(|at| ago(task, at) > cadence::lost_slots(interval));
    let lost_slots = |(worker, its): &(&WorkerReport, &WorkerTask)| {
        // If a worker has fewer slots than its tasks ask for, a run of another task may hold the slot that this task needs.
        let of_worker = worker.tasks.iter().filter(|its| is_long(its)).map(|its| its.lost_runs).sum::<u64>();
        let own = if is_long(its) { its.lost_runs.min(its.slots) } else { 0 };
        let slots = if worker.max_jobs.is_some_and(|most| of_worker >= most) { its.slots } else { own };
        (slots > 0).then(|| LostSlots { worker: worker.worker.clone(), slots })
    };
    let workers: Vec<LostSlots> = claimers.iter().filter_map(lost_slots).collect();
    let slots = claimers.iter().map(|(_, its)| its.slots).sum();
    let is_risk = texts::lost_slots(&workers) >= slots;
    (!workers.is_empty()).then(|| {
        let kind = DiagnosisKind::SlotsHeldByLostRuns { waiting: waiting(task), slots, workers };
        Diagnosis::when(is_risk, Some(&task.task), kind)
    })
}
