//! Finds failures, and runs that broke off, in the report of a task.

use std::time::{Duration, SystemTime};

use super::super::tasks::TaskReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::ago;
use crate::unix_time::to_ms;

/// From this many failures in a row on, a report counts them, although other jobs completed before.
const IN_A_ROW: u64 = 5;

/// From this many failures in a row on, the task has an outage: jobs run, and none completes.
const OUTAGE: u64 = 20;

/// How many rounds of runs that broke off are a note, and how many are a risk.
const ROUNDS: (u64, u64) = (3, 5);

/// Assume that at least this many jobs ran at a time, even if there are fewer slots now.
const RAN_TOGETHER: u64 = 10;

/// From this many failed hooks on, the diagnosis is a risk.
const HOOKS: u64 = 20;

/// Runs that ended within this time count as current.
const PRESENT: Duration = Duration::from_secs(300);

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn is_within(task: &TaskReport, at: Option<SystemTime>, time: Duration) -> bool {
    at.is_some_and(|at| ago(task, at) < time)
}

impl TaskReport {
    /// Whether a run completed in the last 5 minutes.
    pub(super) fn completes(&self) -> bool {
        is_within(self, self.last_completed_at, PRESENT)
    }

    /// Whether a run failed in the last 5 minutes.
    pub(super) fn fails(&self) -> bool {
        is_within(self, self.last_failed_at, PRESENT)
    }

    fn keeps_failed(&self) -> bool {
        self.options.values.get("keepFailed").is_none_or(|value| value != "0")
    }

    /// How many jobs began to fail since a run completed or was snoozed. 0 if none failed in the last day. 0 also if none of them is
    /// left: the task keeps failed jobs, and has neither failed nor unfinished ones.
    #[must_use]
    pub fn failed_in_a_row(&self) -> u64 {
        let is_left = self.counts.failed + self.counts.pending_total() > 0 || !self.keeps_failed();
        if is_left && is_within(self, self.last_failed_at, DAY) { self.failed_since_completed } else { 0 }
    }

    /// Whether jobs run and none completes.
    pub(super) fn is_outage(&self) -> bool {
        self.failed_in_a_row() >= OUTAGE
    }

    /// How often the runs of each job that can run broke off, on average, since a run completed. 0 if none broke off in the last hour.
    #[must_use]
    pub fn broken_off_rounds(&self) -> u64 {
        let able = (self.counts.waiting + self.counts.held_total()).min(self.slots.max(RAN_TOGETHER));
        let is_recent = is_within(self, self.last_broken_off_at, HOUR);
        if is_recent { self.broken_off_since_completed.checked_div(able).unwrap_or(0) } else { 0 }
    }
}

/// Whether this many jobs are an outage.
pub(super) fn are_many(jobs: u64) -> bool {
    jobs >= OUTAGE
}

/// Reports failed jobs, as a risk if they are an outage.
pub(super) fn of_failures(task: &TaskReport) -> Option<Diagnosis> {
    let (row, is_outage) = (task.failed_in_a_row(), task.is_outage());
    let is_named = row >= IN_A_ROW && (task.completed_lately > 0 || is_outage && row > task.failed_lately);
    if task.failed_lately == 0 && row == 0 {
        return None;
    }
    let kind = DiagnosisKind::JobsFail {
        failed_lately: task.failed_lately,
        completed_lately: task.completed_lately,
        in_a_row: if is_named || task.failed_lately == 0 { row } else { 0 },
        kept: if task.keeps_failed() { task.counts.failed } else { 0 },
        last_failed_ago_ms: task.last_failed_at.map(|at| to_ms(ago(task, at))),
    };
    Some(Diagnosis::when(is_outage, Some(&task.task), kind))
}

/// Reports hooks that failed for good.
pub(super) fn of_hooks(task: &TaskReport) -> Option<Diagnosis> {
    let hooks = task.hooks_failed_in_a_row;
    let last = task.hook_failed_at.filter(|_| hooks > 0)?;
    let kind = DiagnosisKind::HooksFail { hooks, last_ago_ms: to_ms(ago(task, last)) };
    Some(Diagnosis::when(hooks >= HOOKS, Some(&task.task), kind))
}

/// Reports runs that break off again and again, because workers stop or die, while none completes. Such runs may take longer than their
/// workers live.
pub(super) fn of_broken_off(task: &TaskReport) -> Option<Diagnosis> {
    let (rounds, (note, risk)) = (task.broken_off_rounds(), ROUNDS);
    let kind = DiagnosisKind::RunsBreakOff {
        runs: task.broken_off_since_completed,
        rounds,
        has_completed: task.last_completed_at.is_some(),
        last_ago_ms: to_ms(ago(task, task.last_broken_off_at?)),
    };
    (rounds >= note).then(|| Diagnosis::when(rounds >= risk, Some(&task.task), kind))
}
