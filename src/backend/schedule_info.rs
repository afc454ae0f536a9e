//! A stored schedule as people see it.

use std::time::Duration;

use super::schedules::{SILENT_MS, StoredSchedule, StoredTick};
use crate::schedule::info::{RecentTick, ScheduleInfo, SchedulePause};
use crate::schedule::policy::Overlap;
use crate::schedule::stored::StoredRule;
use crate::unix_time::at_ms;

/// The schedule as people see it, at this time of the server, ms.
pub(crate) fn info_of(now_ms: u64, row: StoredSchedule) -> ScheduleInfo {
    let rule = StoredRule::read(&row.json);
    let fault = match &rule {
        Err(why) => Some(why.clone()),
        Ok(_) if !row.is_readable => Some("its data in Redis is damaged".to_owned()),
        Ok(_) => None,
    };
    let schedule = rule.ok();
    let ledger = row.ledger;
    let is_live = |(at_ms, _): &(u64, String)| now_ms.abs_diff(*at_ms) <= SILENT_MS;
    let late_ms = ledger.at_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms));
    let recent = |tick: &StoredTick| RecentTick { due: at_ms(tick.due_ms), outcome: tick.kind, count: tick.count };
    ScheduleInfo {
        name: row.name,
        rule: schedule.as_ref().map_or_else(|| row.json.clone(), ToString::to_string),
        source: row.source,
        by: row.by,
        overlap: schedule.as_ref().map_or_else(Overlap::default, |schedule| schedule.overlap),
        missed: schedule.as_ref().map_or_else(String::new, |schedule| schedule.missed.to_string()),
        next: ledger.due_ms.map(at_ms),
        next_at: ledger.at_ms.map(at_ms),
        late: Duration::from_millis(late_ms),
        differing: row.differing.filter(is_live).map(|(_, worker)| worker),
        pause: row.pause.map(|pause| SchedulePause { at: at_ms(pause.at_ms), by: pause.by, reason: pause.reason }),
        since: at_ms(ledger.since_ms),
        fired: ledger.fired,
        overlapped: ledger.overlapped,
        missed_ticks: ledger.missed,
        paused_ticks: ledger.paused,
        by_hand: ledger.by_hand,
        missed_is_lower_bound: ledger.at_least,
        last: ledger.last_ms.map(at_ms),
        last_job: ledger.last_job,
        last_state: row.last_state,
        last_late: ledger.late_ms.map(Duration::from_millis),
        pending: ledger.pending_ms.map(at_ms),
        input_bytes: row.input_bytes,
        recent: row.ticks.iter().map(recent).collect(),
        fault,
        schedule,
    }
}
