//! `schedules next` and `schedules load`: what the schedules fire next, tick by tick and minute by minute.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use heartline::inspect::describe::{NextTick, next_ticks};
use heartline::inspect::text::{relative, rfc3339, shown};
use serde::Serialize;
use serde_json::json;

use super::schedule_rows::{Row, read};
use crate::failure::Failure;
use crate::session::Session;

/// The time that `load` shows.
const DAY: Duration = Duration::from_secs(24 * 3600);

const HOUR_MS: u64 = 3_600_000;

/// The most ticks that `load` counts.
const COUNTED: usize = 1_000_000;

/// How many schedules are named for a minute.
const NAMED: usize = 3;

/// Ms since 1970.
fn ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn next(session: &Session, task: Option<&str>, count: usize) -> Result<(), Failure> {
    let found = read(session, task).await?;
    let now = session.inspector.now().await;
    let mut ticks: Vec<(NextTick, &Row)> = Vec::new();
    for row in &found.rows {
        ticks.extend(next_ticks(&row.schedule, now).take(count).map(|tick| (tick, row)));
    }
    ticks.sort_by_key(|(tick, _)| tick.at);
    ticks.truncate(count);
    let printed = if session.out.is_json {
        let row = |(tick, row): &(NextTick, &Row)| {
            json!({
                "task": row.task, "schedule": row.schedule.name, "due_ms": ms(tick.due), "at_ms": ms(tick.at),
                "paused": row.schedule.pause.is_some(),
            })
        };
        session.out.json(&ticks.iter().map(row).collect::<Vec<_>>())
    } else if ticks.is_empty() {
        Ok(())
    } else {
        let cells = |(tick, row): &(NextTick, &Row)| {
            let paused = if row.schedule.pause.is_some() { " (paused)" } else { "" };
            let name = format!("{}{paused}", shown(&row.schedule.name));
            vec![rfc3339(tick.due), relative(tick.at, now), shown(&row.task), name, shown(&row.schedule.rule)]
        };
        session.out.table(&["DUE", "FIRES", "TASK", "SCHEDULE", "RULE"], ticks.iter().map(cells).collect())
    };
    found.end(session, task, printed)
}

/// What fires within a minute.
#[derive(Default, Serialize)]
struct Minute {
    at_ms: u64,
    jobs: u64,
    /// The first schedules, as `task/name`.
    such_as: Vec<String>,
}

/// The minutes of the next day in which a job is created, in order, and whether all ticks were counted.
fn minutes(rows: &[Row], now: SystemTime) -> (Vec<Minute>, bool) {
    let (mut minutes, mut left) = (BTreeMap::<u64, Minute>::new(), COUNTED);
    let end = now.checked_add(DAY).unwrap_or(now);
    for row in rows.iter().filter(|row| row.schedule.pause.is_none()) {
        let name = format!("{}/{}", row.task, row.schedule.name);
        for tick in next_ticks(&row.schedule, now).take_while(|tick| tick.at < end) {
            if left == 0 {
                return (minutes.into_values().collect(), false);
            }
            left -= 1;
            // An overdue tick fires now.
            let at_ms = ms(tick.at.max(now)) / 60_000 * 60_000;
            let minute = minutes.entry(at_ms).or_insert_with(|| Minute { at_ms, ..Minute::default() });
            minute.jobs += 1;
            if minute.such_as.len() < NAMED && minute.such_as.last() != Some(&name) {
                minute.such_as.push(name.clone());
            }
        }
    }
    (minutes.into_values().collect(), true)
}

/// A minute as a time in UTC.
fn of_day(at_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at_ms)).unwrap_or(SystemTime::UNIX_EPOCH);
    let text = rfc3339(at);
    text.get(..16).map_or_else(|| text.clone(), |minute| format!("{minute}Z"))
}

/// Prints a row for each hour.
fn print_hours(session: &Session, minutes: &[Minute], is_whole: bool) -> Result<(), Failure> {
    let hours = minutes.chunk_by(|one, other| one.at_ms / HOUR_MS == other.at_ms / HOUR_MS);
    let rows = hours.filter_map(|hour| {
        // The first of equal minutes.
        let busiest = hour.iter().rev().max_by_key(|minute| minute.jobs)?;
        let jobs: u64 = hour.iter().map(|minute| minute.jobs).sum();
        Some(vec![
            of_day(busiest.at_ms / HOUR_MS * HOUR_MS),
            jobs.to_string(),
            of_day(busiest.at_ms),
            busiest.jobs.to_string(),
            shown(&busiest.such_as.join(", ")),
        ])
    });
    session.out.table(&["HOUR", "JOBS", "BUSIEST MINUTE", "JOBS IN IT", "SUCH AS"], rows.collect())?;
    session.out.hint("Paused schedules are left out. `jitter` spreads schedules that fire at the same time.");
    if !is_whole {
        session.out.hint("There are more ticks than were counted.");
    }
    Ok(())
}

pub(super) async fn load(session: &Session, task: Option<&str>) -> Result<(), Failure> {
    let found = read(session, task).await?;
    let (minutes, is_whole) = minutes(&found.rows, session.inspector.now().await);
    let printed = match (session.out.is_json, minutes.is_empty()) {
        (true, _) => session.out.json(&json!({ "minutes": minutes, "more": !is_whole })),
        (false, true) => Ok(()),
        (false, false) => print_hours(session, &minutes, is_whole),
    };
    found.end(session, task, printed)
}
