//! Finds schedules that are late, cannot be read, differ between workers, are paused, or overlap more often than not.

use std::time::Duration;

use super::super::Inspector;
use super::super::schedules::ScheduleCounts;
use super::super::tasks::TaskReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::TOGETHER;
use crate::join::join_all;
use crate::schedule::info::ScheduleInfo;
use crate::schedule::policy::TickOutcome;
use crate::unix_time::to_ms;

/// If the first two workers in the order are dead, a tick is up to 5 s late.
const LATE: Duration = Duration::from_secs(30);

/// How many schedules are read, over all tasks.
const READ: usize = 1_000;

/// From this many ticks on, overlaps are reported.
const TICKS: u64 = 10;

impl Inspector {
    /// The schedules in numbers of each task that has or had some, and what is wrong with them. Skips tasks that cannot be read.
    pub(super) async fn diagnose_schedules(&self, tasks: &[TaskReport]) -> (Vec<ScheduleCounts>, Vec<Diagnosis>) {
        let readable: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none()).collect();
        let mut totals = Vec::new();
        for some in readable.chunks(TOGETHER) {
            let reads = join_all(some.iter().map(|task| self.schedule_totals(&task.task))).await;
            totals.extend(reads.into_iter().flatten().filter(ScheduleCounts::is_used));
        }
        let (mut found, mut left) = (Vec::new(), READ);
        for own in totals.iter().filter(|own| own.schedules > 0) {
            found.extend(late(own));
            if left == 0 {
                continue;
            }
            if let Ok(list) = self.schedules_up_to(&own.task, left).await {
                left = left.saturating_sub(list.schedules.len());
                found.extend(unreadable(&own.task, &list.schedules));
                found.extend(differing(&own.task, &list.schedules));
                found.extend(overlapping(&own.task, &list.schedules));
                found.extend(paused(own, &list.schedules));
            }
        }
        (totals, found)
    }
}

/// Reports that no worker fires the schedules of the task.
fn late(own: &ScheduleCounts) -> Option<Diagnosis> {
    let kind = DiagnosisKind::SchedulesLate { late_ms: to_ms(own.late), workers: own.keepers };
    (own.late >= LATE).then(|| Diagnosis::risk(Some(&own.task), kind))
}

fn unreadable(task: &str, schedules: &[ScheduleInfo]) -> Option<Diagnosis> {
    let mut faults = schedules.iter().filter_map(|row| Some((row, row.fault.as_ref()?)));
    let (first, fault) = faults.next()?;
    let (first, fault) = (first.name.clone(), fault.clone());
    let kind = DiagnosisKind::SchedulesUnreadable { schedules: 1 + faults.count() as u64, first, fault };
    Some(Diagnosis::risk(Some(task), kind))
}

fn differing(task: &str, schedules: &[ScheduleInfo]) -> Option<Diagnosis> {
    let mut differ = schedules.iter().filter_map(|row| Some((row, row.differing.clone()?)));
    let (first, other) = differ.next()?;
    let (first, by) = (first.name.clone(), first.by.clone());
    let kind = DiagnosisKind::SchedulesDiffer { schedules: 1 + differ.count() as u64, first, by, other };
    Some(Diagnosis::note(Some(task), kind))
}

/// The last ticks of a schedule that overlapped, and all that fired or overlapped.
fn overlaps(schedule: &ScheduleInfo) -> (u64, u64) {
    let count = |outcome: TickOutcome| {
        let its = schedule.recent.iter().filter(|tick| tick.outcome == outcome);
        its.map(|tick| tick.count).fold(0, u64::saturating_add)
    };
    let overlapped = count(TickOutcome::Overlapped);
    (overlapped, overlapped.saturating_add(count(TickOutcome::Fired)))
}

fn overlapping(task: &str, schedules: &[ScheduleInfo]) -> Option<Diagnosis> {
    let all = schedules.iter().map(|row| (row, overlaps(row)));
    let mut often = all.filter(|(_, (overlapped, ticks))| *ticks >= TICKS && *overlapped > ticks / 2);
    let (first, (overlapped, ticks)) = often.next()?;
    let first = first.name.clone();
    let kind = DiagnosisKind::SchedulesOverlap { schedules: 1 + often.count() as u64, first, overlapped, ticks };
    Some(Diagnosis::note(Some(task), kind))
}

fn paused(own: &ScheduleCounts, schedules: &[ScheduleInfo]) -> Option<Diagnosis> {
    let mut paused = schedules.iter().filter_map(|row| Some((row, row.pause.as_ref()?)));
    let (first, pause) = paused.next()?;
    let (by, reason) = (pause.by.clone(), pause.reason.clone());
    let ago_ms = to_ms(own.as_of.duration_since(pause.at).unwrap_or_default());
    let schedules = 1 + paused.count() as u64;
    let kind = DiagnosisKind::SchedulesPaused { schedules, first: first.name.clone(), by, reason, ago_ms };
    Some(Diagnosis::note(Some(&own.task), kind))
}
