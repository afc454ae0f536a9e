//! How due rows of schedules are fired (`lua/schedule_fire.lua`): which ticks, as which jobs, in which calls.

use super::actions::{self, Named};
use super::connection::Connection;
use super::keys::TaskKeys;
use super::schedules::{DueRow, Fired, Firing};
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::job::tick::Tick;
use crate::limits::BATCH;
use crate::options::overrides::Overrides;
use crate::schedule::ids::tick_id;
use crate::schedule::plan::{self, Row};
use crate::schedule::policy::Overlap;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::{self, StoredRule};

/// The most rows that one call fires.
pub(crate) const MOST_FIRINGS: usize = 25;

/// The most bytes of inputs that one call copies.
pub(crate) const MOST_COPIED: usize = 1024 * 1024;

/// The options of the job of a tick, as JSON.
pub(crate) fn tick_json(name: &str, due_ms: u64, previous_ms: Option<u64>) -> Result<String> {
    let tick = Some(Tick::new(name.to_owned(), due_ms, previous_ms));
    serde_json::to_string(&Overrides { tick, ..Overrides::default() })
        .map_err(|source| Error::Codec { what: "the tick of a schedule".to_owned(), source })
}

/// What to fire of a due row, and how many bytes of inputs that copies. `None` if no tick is due.
///
/// # Errors
/// Why the rule cannot be read.
pub(crate) fn firing<'a>(keys: &TaskKeys, now_ms: u64, row: &'a DueRow) -> Result<Option<(Firing<'a>, usize)>, String> {
    firing_by(&StoredRule::read(&row.json)?, keys, now_ms, row)
}

/// The same by the rule of the row, for callers that keep rules: reading one takes time.
///
/// # Errors
/// If the tick cannot be written as JSON.
pub(crate) fn firing_by<'a>(
    schedule: &Schedule,
    keys: &TaskKeys,
    now_ms: u64,
    row: &'a DueRow,
) -> Result<Option<(Firing<'a>, usize)>, String> {
    let overlap = schedule.overlap;
    let job = |due_ms, previous_ms| {
        let json = tick_json(&row.name, due_ms, previous_ms).map_err(|e| e.to_string())?;
        Ok::<(u64, JobId, String), String>((due_ms, tick_id(&row.name, due_ms, (keys.part(), keys.parts())), json))
    };
    let mut firing = Firing {
        name: &row.name,
        digest: &row.digest,
        zone_data: stored::zone_data(schedule),
        overlap,
        due_ms: row.due_ms,
        through_ms: row.due_ms,
        next: None,
        fire: Vec::new(),
        missed: 0,
        paused: 0,
        at_least: false,
        is_pending: row.pending,
    };
    if row.pending {
        firing.fire.push(job(row.due_ms, row.last_ms)?);
        return Ok(Some((firing, row.input_bytes)));
    }
    let (name, is_paused) = (row.name.as_str(), row.is_paused);
    let known = Row { name, schedule, due_ms: row.due_ms, last_ms: row.last_ms, is_paused };
    let Some(plan) = plan::plan(&known, now_ms) else { return Ok(None) };
    (firing.due_ms, firing.through_ms, firing.next) = (plan.due_ms, plan.through_ms, plan.next);
    (firing.missed, firing.paused, firing.at_least) = (plan.missed, plan.paused, plan.at_least);
    let fits = match overlap {
        Overlap::Allow => (MOST_COPIED / row.input_bytes.max(1)).max(1),
        // One job at most.
        _ => plan.fire.len(),
    };
    // No tick lies between two that fire, so the first that does not fit is the next one.
    if let (Some(next), Some(last)) = (plan.fire.get(fits), fits.checked_sub(1).and_then(|at| plan.fire.get(at))) {
        firing.through_ms = last.due_ms;
        firing.next = Some((next.due_ms, schedule.at(name, next.due_ms)));
    }
    firing.fire =
        plan.fire.iter().take(fits).map(|tick| job(tick.due_ms, tick.previous_ms)).collect::<Result<_, _>>()?;
    let jobs = if overlap == Overlap::Allow { firing.fire.len() } else { firing.fire.len().min(1) };
    Ok(Some((firing, row.input_bytes.saturating_mul(jobs))))
}

/// Splits firings into calls of bounded size, in their order. Each comes with the bytes that it copies.
pub(crate) fn in_calls(firings: Vec<(Firing<'_>, usize)>) -> Vec<Vec<Firing<'_>>> {
    let mut calls: Vec<Vec<Firing<'_>>> = Vec::new();
    let (mut jobs, mut bytes) = (0, 0);
    for (firing, copied) in firings {
        (jobs, bytes) = (jobs + firing.fire.len(), bytes + copied);
        match calls.last_mut() {
            Some(call) if call.len() < MOST_FIRINGS && jobs <= BATCH && bytes <= MOST_COPIED => call.push(firing),
            _ => {
                (jobs, bytes) = (firing.fire.len(), copied);
                calls.push(vec![firing]);
            }
        }
    }
    calls
}

/// Cancels the jobs that ticks with `Overlap::Replace` replace.
pub(crate) async fn cancel_replaced(conn: &mut impl Connection, keys: &TaskKeys, fired: &[Fired]) -> Result<()> {
    let replaced = |fired: &Fired| match fired {
        Fired::Done { replaces: Some(id), .. } => Some(id.clone()),
        _ => None,
    };
    let replaced: Vec<JobId> = fired.iter().filter_map(replaced).collect();
    cancel_jobs(conn, keys, &replaced).await
}

/// Cancels these jobs, which such ticks replace; at most `BATCH`.
pub(crate) async fn cancel_jobs(conn: &mut impl Connection, keys: &TaskKeys, replaced: &[JobId]) -> Result<()> {
    let replaced: Vec<Named> = replaced.iter().cloned().map(Named::anywhere).collect();
    if !replaced.is_empty() {
        actions::cancel(conn, keys, &replaced, "the next tick of its schedule replaces it", "").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DUE: u64 = 1_700_000_000_000;

    fn row(overlap: Overlap, input_bytes: usize) -> DueRow {
        let rule = Schedule::every(Duration::from_secs(1)).overlap(overlap);
        DueRow {
            name: "poll".to_owned(),
            digest: "d".to_owned(),
            zone_data: "-".to_owned(),
            json: StoredRule::to_json(&rule),
            due_ms: DUE,
            last_ms: Some(DUE - 1000),
            is_paused: false,
            input_bytes,
            pending: false,
        }
    }

    fn keys() -> TaskKeys {
        TaskKeys::new("heartline", "export", false)
    }

    #[test]
    fn the_job_of_a_tick_has_its_id_and_its_times() {
        let row = row(Overlap::Skip, 4);
        let (found, bytes) = firing(&keys(), DUE + 1500, &row).unwrap().unwrap();
        assert_eq!((found.due_ms, found.through_ms, found.next), (DUE, DUE + 1000, Some((DUE + 2000, DUE + 2000))));
        let jobs: Vec<(u64, &str)> = found.fire.iter().map(|(due, id, _)| (*due, id.as_str())).collect();
        assert_eq!(jobs, [(DUE, "poll@1700000000000"), (DUE + 1000, "poll@1700000001000")]);
        let json = r#"{"tick":{"schedule":"poll","due_ms":1700000000000,"previous_ms":1699999999000}}"#;
        assert_eq!((found.fire[0].2.as_str(), bytes), (json, 4));
        assert!(firing(&keys(), DUE - 1, &row).unwrap().is_none());
        let waits = DueRow { pending: true, ..row };
        let (found, _) = firing(&keys(), DUE + 9000, &waits).unwrap().unwrap();
        assert!(found.is_pending && found.fire.len() == 1 && found.fire[0].2 == json);
        assert!(firing(&keys(), DUE, &DueRow { json: "{}".to_owned(), ..waits }).is_err());
    }

    #[test]
    fn ticks_whose_inputs_do_not_fit_are_left_for_the_next_call() {
        let large = row(Overlap::Allow, 400 * 1024);
        let (found, bytes) = firing(&keys(), DUE + 9500, &large).unwrap().unwrap();
        assert_eq!((found.fire.len(), bytes), (2, 800 * 1024));
        assert_eq!((found.through_ms, found.next), (DUE + 1000, Some((DUE + 2000, DUE + 2000))));
        let huge = row(Overlap::Allow, 4 * MOST_COPIED);
        assert_eq!(firing(&keys(), DUE + 9500, &huge).unwrap().unwrap().0.fire.len(), 1);
        // Of several ticks that may not overlap, at most one makes a job.
        let skips = row(Overlap::Skip, 400 * 1024);
        let (found, bytes) = firing(&keys(), DUE + 9500, &skips).unwrap().unwrap();
        assert_eq!((found.fire.len(), bytes), (10, 400 * 1024));
    }

    #[test]
    fn a_call_is_bounded_in_schedules_ticks_and_bytes() {
        let (keys, small) = (keys(), row(Overlap::Allow, 1));
        let sizes = |ticks: u64, copied: usize, count: usize| {
            let due = || firing(&keys, DUE + 1000 * (ticks - 1), &small).unwrap().unwrap().0;
            in_calls((0..count).map(|_| (due(), copied)).collect()).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(1, 1, 120), [25, 25, 25, 25, 20]);
        assert_eq!(sizes(30, 1, 13), [6, 6, 1]);
        assert_eq!(sizes(1, MOST_COPIED / 2, 5), [2, 2, 1]);
        assert_eq!(sizes(1, 2 * MOST_COPIED, 2), [1, 1]);
    }
}
