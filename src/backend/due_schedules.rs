//! Due ticks of the schedules of one table (`lua/schedule_look.lua`, `schedule_fire.lua`).

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::schedule_rows::{at_of, flag, or_dash, plain};
use super::scripts;
use crate::error::Result;
use crate::job::id::JobId;
use crate::limits::stored_number;
use crate::schedule::policy::Overlap;

/// A schedule of which a tick may fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueRow {
    pub(crate) name: String,
    pub(crate) digest: String,
    pub(crate) zone_data: String,
    pub(crate) json: String,
    /// The next tick, or with `pending` the pending one, ms.
    pub(crate) due_ms: u64,
    /// The tick before that one, ms.
    pub(crate) last_ms: Option<u64>,
    pub(crate) is_paused: bool,
    pub(crate) input_bytes: usize,
    /// Whether this is the tick that waited for the last job, which has ended. A schedule may have a row of each kind.
    pub(crate) pending: bool,
}

/// What one look at a table found.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) now_ms: u64,
    /// In the order in which they are to be fired, then the pending ones.
    pub(crate) due: Vec<DueRow>,
    /// Schedules that cannot be read. They are found again after 60 s.
    pub(crate) unreadable: Vec<String>,
    /// When the first tick after `now_ms` is to be fired.
    pub(crate) next_at_ms: Option<u64>,
    /// Whether there are more than these.
    pub(crate) more: bool,
    /// Jobs that pending ticks replace, and that nothing has cancelled yet.
    pub(crate) replaced: Vec<JobId>,
}

/// Finds schedules that are due, at most `most`. Leaves out the first `skipped` due ones.
pub(crate) async fn look(conn: &mut impl Connection, keys: &TaskKeys, most: usize, skipped: usize) -> Result<Look> {
    let mut reply = scripts::SCHEDULE_LOOK.on(keys).arg(most).arg(skipped).answer(conn).await?;
    let (now_ms, next_at_ms) = (reply.next()?, at_of(&reply.text()?));
    let more = flag(&mut reply)?;
    let (unreadable, rows): (Vec<Text>, Vec<Vec<Text>>) = (reply.next()?, reply.next()?);
    let due = rows.into_iter().filter_map(due_row).collect();
    let replaced = plain(reply.next()?).into_iter().map(JobId::from_wire).collect();
    Ok(Look { now_ms, due, unreadable: plain(unreadable), next_at_ms, more, replaced })
}

fn due_row(row: Vec<Text>) -> Option<DueRow> {
    let row: [Text; 9] = row.try_into().ok()?;
    let [name, digest, zone_data, json, due, last, paused, bytes, pending] = row.map(|Text(text)| text);
    Some(DueRow {
        name,
        digest,
        zone_data,
        json,
        due_ms: stored_number(&due)?,
        last_ms: stored_number(&last),
        is_paused: paused == "1",
        input_bytes: bytes.parse().ok()?,
        pending: pending == "1",
    })
}

/// The ticks of a schedule that one call accounts for.
#[derive(Debug)]
pub(crate) struct Firing<'a> {
    pub(crate) name: &'a str,
    pub(crate) digest: &'a str,
    /// The version of the caller's zone data.
    pub(crate) zone_data: &'a str,
    pub(crate) overlap: Overlap,
    pub(crate) due_ms: u64,
    /// The last tick that this call accounts for, ms.
    pub(crate) through_ms: u64,
    /// The tick after that, and when it is to be fired, ms.
    pub(crate) next: Option<(u64, u64)>,
    /// The ticks that fire: when (ms), the id of the job, and its overrides with the tick, as JSON.
    pub(crate) fire: Vec<(u64, JobId, String)>,
    pub(crate) missed: u64,
    pub(crate) paused: u64,
    /// Whether `missed` is a lower bound.
    pub(crate) at_least: bool,
    /// Whether only the pending tick fires. It is the only one in `fire`, and what is due stays.
    pub(crate) is_pending: bool,
}

/// The answer for one [`Firing`]. In all but the first case nothing was written for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    /// The number of new jobs, and the job that the newest tick replaces: the caller must cancel it.
    Done {
        jobs: u32,
        replaces: Option<JobId>,
    },
    /// Another tick is next, or pending: another worker was faster.
    Moved,
    /// Another rule or input is in force, or the schedule was paused or resumed.
    Changed,
    /// A tick is later than the server's time, or the last job of the pending tick has not ended.
    Early,
    /// The row was computed with newer zone data than the caller has.
    Older,
    Unknown,
    Unreadable,
}

/// The answer to a [`fire`].
#[derive(Debug)]
pub(crate) struct FireReply {
    pub(crate) now_ms: u64,
    /// When the first tick after `now_ms` is to be fired.
    pub(crate) next_at_ms: Option<u64>,
    /// Whether other ticks are due, or these schedules have more.
    pub(crate) more: bool,
    /// For each firing, in order.
    pub(crate) fired: Vec<Fired>,
}

/// Fires ticks: at most 25 schedules, 200 ticks and 1 MiB of inputs. Safe to repeat: what has fired gets `Moved`.
pub(crate) async fn fire(conn: &mut impl Connection, keys: &TaskKeys, firings: &[Firing<'_>]) -> Result<FireReply> {
    let mut call = scripts::SCHEDULE_FIRE.on(keys);
    for firing in firings {
        call.arg(firing.name).arg(firing.digest).arg(firing.zone_data).arg(firing.overlap.as_str());
        call.arg(firing.due_ms).arg(firing.through_ms);
        call.arg(or_dash(firing.next.map(|(due, _)| due))).arg(or_dash(firing.next.map(|(_, at)| at)));
        call.arg(firing.missed).arg(firing.paused).arg(u8::from(firing.at_least)).arg(u8::from(firing.is_pending));
        call.arg(firing.fire.len());
        for (due_ms, id, overrides) in &firing.fire {
            call.arg(due_ms).arg(or_dash(previous_of(overrides))).arg(id.as_str()).arg(overrides);
        }
    }
    let mut reply = call.answer(conn).await?;
    let (now_ms, next_at_ms) = (reply.next()?, at_of(&reply.text()?));
    let more = flag(&mut reply)?;
    let words: Vec<String> = reply.rest()?;
    let fired = words.iter().map(|words| fired_of(words).ok_or_else(|| reply.unexpected(words)));
    Ok(FireReply { now_ms, next_at_ms, more, fired: fired.collect::<Result<_>>()? })
}

/// The tick before, which the script needs, from the overrides of a job.
fn previous_of(overrides: &str) -> Option<u64> {
    let overrides: serde_json::Value = serde_json::from_str(overrides).ok()?;
    overrides.get("tick")?.get("previous_ms")?.as_u64()
}

fn fired_of(words: &str) -> Option<Fired> {
    match words {
        "moved" => Some(Fired::Moved),
        "changed" => Some(Fired::Changed),
        "early" => Some(Fired::Early),
        "older" => Some(Fired::Older),
        "unknown" => Some(Fired::Unknown),
        "unreadable" => Some(Fired::Unreadable),
        words => {
            let (jobs, replaces) = words.strip_prefix("done ")?.split_once(' ')?;
            let replaces = Some(replaces).filter(|id| *id != "-").map(JobId::from_wire);
            Some(Fired::Done { jobs: jobs.parse().ok()?, replaces })
        }
    }
}
