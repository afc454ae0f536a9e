//! Writes a schedule (`lua/schedule_put.lua`), after the ticks that are due under its old rule.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::schedule_firing::{cancel_replaced, firing};
use super::schedules::{self, DueRow, Fired, NewSchedule, Put, StoredSchedule};
use crate::error::Result;
use crate::schedule::policy::ScheduleSource;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::{self, StoredRule};

/// How often a call is repeated because the schedule changed meanwhile.
pub(super) const ATTEMPTS: usize = 5;

/// The most calls that fire ticks before a rule changes: 1,000 missed ticks, 50 a call, and room for late ones.
const FIRINGS: usize = 30;

/// A schedule as a process wants it to be.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: ScheduleSource,
    /// When the worker declared its tasks, ms by the server's clock; 0 at run time.
    pub(crate) stamp: u64,
    pub(crate) by: &'a str,
    pub(crate) schedule: &'a Schedule,
    /// Names the rule and the input.
    pub(crate) digest: &'a str,
    /// As it is stored.
    pub(crate) input: &'a [u8],
}

/// Writes the schedule over this connection. Before a rule changes, fires the ticks that are due under the old one.
/// `Due` or `Again` if it keeps changing.
pub(crate) async fn put_over(conn: &mut impl Connection, keys: &TaskKeys, wanted: &Wanted<'_>) -> Result<Put> {
    let Wanted { name, source, stamp, by, schedule, digest, input } = *wanted;
    let json = StoredRule::to_json(schedule);
    let zone_data = stored::zone_data(schedule);
    let (mut last, mut attempts, mut firings) = (Put::Again, 0, 0);
    while attempts < ATTEMPTS && firings < FIRINGS {
        attempts += 1;
        let (now_ms, mut rows) = schedules::read(conn, keys, &[name]).await?;
        let row = rows.pop().flatten();
        let changes = |row: &&StoredSchedule| row.digest != digest || row.zone_data != zone_data;
        let mut replaces_unreadable = row.as_ref().is_some_and(|row| !row.is_readable);
        let changed = row.as_ref().filter(|row| row.is_readable).filter(changes);
        if let Some((due, at_ms)) = changed.and_then(|row| due_row(now_ms, row)) {
            match firing(keys, now_ms.max(at_ms), &due) {
                Ok(None) => {}
                Ok(Some((due, _))) => {
                    let fired = schedules::fire(conn, keys, &[due]).await?.fired;
                    cancel_replaced(conn, keys, &fired).await?;
                    if matches!(fired[..], [Fired::Done { .. }]) {
                        (attempts, firings) = (0, firings + 1);
                    }
                    continue;
                }
                // A newer version wrote the rule. Its due tick counts as missed.
                Err(_) => replaces_unreadable = true,
            }
        }
        let last_ms = row.as_ref().and_then(|row| row.ledger.last_ms).unwrap_or(0);
        let basis_ms = now_ms.max(last_ms);
        let next = schedule.next_after(basis_ms).map(|due_ms| (due_ms, schedule.at(name, due_ms)));
        let json = json.as_str();
        let new = NewSchedule {
            name,
            source,
            stamp,
            by,
            digest,
            zone_data,
            json,
            input,
            basis_ms,
            next,
            replaces_unreadable,
        };
        last = schedules::put(conn, keys, &new).await?;
        if !matches!(last, Put::Due | Put::Again) {
            break;
        }
    }
    Ok(last)
}

/// The row as a look returns it, and when its tick fires, ms; `None` if no tick of it is due. A tick that only waits for
/// its jitter fires too, since it belongs to the old rule.
fn due_row(now_ms: u64, row: &StoredSchedule) -> Option<(DueRow, u64)> {
    let due_ms = row.ledger.due_ms.filter(|due_ms| *due_ms <= now_ms)?;
    let due = DueRow {
        name: row.name.clone(),
        digest: row.digest.clone(),
        zone_data: row.zone_data.clone(),
        json: row.json.clone(),
        due_ms,
        last_ms: row.ledger.last_ms,
        is_paused: row.pause.is_some(),
        input_bytes: row.input_bytes,
        pending: false,
    };
    let at_ms = StoredRule::read(&row.json).map_or(due_ms, |rule| rule.at(&row.name, due_ms));
    Some((due, at_ms))
}
