//! Schedules of one table: what workers declare and people do (`lua/schedule_put.lua`, `schedule_names.lua`,
//! `schedule_read.lua`, `schedule_pause.lua`, `schedule_run.lua`, `schedule_remove.lua`).

use super::connection::Connection;
use super::declare::WIRE_VERSION;
pub(crate) use super::due_schedules::{DueRow, FireReply, Fired, Firing, Look, fire, look};
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
pub(crate) use super::schedule_rows::{StoredSchedule, StoredTick};
use super::schedule_rows::{flag, or_dash, plain, stored_of};
use super::scripts;
use super::values;
use crate::error::Result;
use crate::job::id::JobId;
use crate::limits::{stored_number, stored_score};
use crate::schedule::policy::ScheduleSource;

/// A worker that was not heard from for this long does not fire.
pub(super) const SILENT_MS: u64 = 15_000;

/// A schedule to write.
#[derive(Debug)]
pub(crate) struct NewSchedule<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: ScheduleSource,
    /// When the worker started, ms by the server's clock; 0 at run time.
    pub(crate) stamp: u64,
    /// The worker or person. Spaces are replaced.
    pub(crate) by: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) zone_data: &'a str,
    pub(crate) json: &'a str,
    pub(crate) input: &'a [u8],
    /// The larger of the server's time and the last tick, ms. The next tick is the first after it.
    pub(crate) basis_ms: u64,
    /// The next tick, and when it is to be fired, ms.
    pub(crate) next: Option<(u64, u64)>,
    /// Whether a due tick of a rule that the caller cannot read counts as missed.
    pub(crate) replaces_unreadable: bool,
}

/// The answer to a [`put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is in force. `has_keeper`: a worker that fires ticks was heard from within 15 s.
    Written { is_new: bool, has_keeper: bool },
    /// It was in force before.
    Same { has_keeper: bool },
    /// A tick of the rule in force must fire first.
    Due,
    /// A rule that takes precedence is in force.
    Kept,
    /// `basis_ms` no longer fits the server's time and the last tick.
    Again,
    /// The task has this number of partitions, which differs from the caller's.
    Partitions(u32),
}

/// Writes a schedule, and asks the keepers of the table to look. Safe to repeat.
pub(crate) async fn put(conn: &mut impl Connection, keys: &TaskKeys, new: &NewSchedule<'_>) -> Result<Put> {
    let by = if new.by.is_empty() { "-".to_owned() } else { new.by.replace(char::is_whitespace, "_") };
    let mut call = scripts::SCHEDULE_PUT.on(keys);
    call.arg(WIRE_VERSION).arg(new.name).arg(source_word(new.source)).arg(new.stamp).arg(by);
    call.arg(new.digest).arg(new.zone_data).arg(new.json).arg(new.input).arg(new.basis_ms);
    call.arg(or_dash(new.next.map(|(due, _)| due))).arg(or_dash(new.next.map(|(_, at)| at)));
    call.arg(u8::from(new.replaces_unreadable)).arg(keys.cancel_channel()).arg(keys.parts());
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "written" => Ok(Put::Written { is_new: flag(&mut reply)?, has_keeper: flag(&mut reply)? }),
        "same" => Ok(Put::Same { has_keeper: flag(&mut reply)? }),
        "due" => Ok(Put::Due),
        "kept" => Ok(Put::Kept),
        "again" => Ok(Put::Again),
        "partitions" => Ok(Put::Partitions(reply.next()?)),
        word => Err(reply.unexpected(word)),
    }
}

/// The answer to a report of names.
#[derive(Debug)]
pub(crate) struct Names {
    /// The workers that were heard from within 15 s, sorted.
    pub(crate) keepers: Vec<String>,
    /// The schedules that this call removed.
    pub(crate) removed: Vec<String>,
    /// The named schedules that have no row, or an unreadable one.
    pub(crate) missing: Vec<String>,
    /// Whether the worker was heard from within a minute before. If not, the clock of the server may have jumped.
    pub(crate) is_steady: bool,
}

/// Reports that a worker fires ticks, and at most 500 schedules of its code, with their digests. With `may_prune`, removes up to 50
/// schedules in code that no worker has named for 10 minutes. Safe to repeat.
pub(crate) async fn report_names(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    names: &[(&str, &str)],
    may_prune: bool,
) -> Result<Names> {
    let mut call = scripts::SCHEDULE_NAMES.on(keys);
    call.arg(worker).arg(u8::from(may_prune));
    for (name, digest) in names {
        call.arg(*name).arg(*digest);
    }
    let mut reply = call.answer(conn).await?;
    let (keepers, removed, missing) = (reply.next()?, reply.next()?, reply.next()?);
    let (mut keepers, is_steady) = (plain(keepers), flag(&mut reply)?);
    keepers.sort();
    Ok(Names { keepers, removed: plain(removed), missing: plain(missing), is_steady })
}

/// Reports that a worker no longer fires ticks.
pub(crate) async fn leave(conn: &mut impl Connection, keys: &TaskKeys, worker: &str) -> Result<()> {
    redis::cmd("ZREM").arg(keys.get(Key::ScheduleKeepers)).arg(worker).call(conn, "schedule_names").await
}

/// Reads at most 100 schedules; `None` for those that do not exist. Also returns the server's time, ms.
pub(crate) async fn read(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    names: &[&str],
) -> Result<(u64, Vec<Option<StoredSchedule>>)> {
    let mut reply = scripts::SCHEDULE_READ.on(keys).args(names).answer(conn).await?;
    let (now_ms, rows): (u64, Vec<Vec<Text>>) = (reply.next()?, reply.next()?);
    Ok((now_ms, names.iter().zip(rows).map(|(name, row)| stored_of(name, row)).collect()))
}

/// Lists about `most` names of schedules from this cursor on, 0 at first. Returns them with the next cursor, 0 at the
/// end. A name may occur in two pages, and a small table is one page.
pub(crate) async fn list(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    from: u64,
    most: usize,
) -> Result<(Vec<String>, u64)> {
    let mut scan = redis::cmd("HSCAN");
    scan.arg(keys.get(Key::ScheduleRule)).arg(from).arg("COUNT").arg(most);
    let (next, rows): (u64, Vec<(Text, Text)>) = scan.call(conn, "schedule_read").await?;
    Ok((rows.into_iter().map(|(Text(name), _)| name).collect(), next))
}

/// The input of the jobs of a schedule; `None` if there is no such schedule.
pub(crate) async fn input(conn: &mut impl Connection, keys: &TaskKeys, name: &str) -> Result<Option<Vec<u8>>> {
    values::value(conn, keys, Key::ScheduleInput, name).await
}

/// Pauses a schedule. `None` if there is no such schedule; `false` if it was paused before.
pub(crate) async fn pause(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    name: &str,
    by: &str,
    reason: &str,
) -> Result<Option<bool>> {
    let why = serde_json::json!({ "by": by, "reason": reason }).to_string();
    set_pause(conn, keys, name, &why).await
}

/// Ends the pause of a schedule. `None` if there is no such schedule; `false` if it was not paused.
pub(crate) async fn resume(conn: &mut impl Connection, keys: &TaskKeys, name: &str) -> Result<Option<bool>> {
    set_pause(conn, keys, name, "").await
}

async fn set_pause(conn: &mut impl Connection, keys: &TaskKeys, name: &str, why: &str) -> Result<Option<bool>> {
    let mut reply = scripts::SCHEDULE_PAUSE.on(keys).arg(name).arg(why).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "paused" | "resumed" => Ok(Some(true)),
        "already" => Ok(Some(false)),
        "unknown" => Ok(None),
        word => Err(reply.unexpected(word)),
    }
}

/// The answer to a [`run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The number of new jobs.
    Done { jobs: u32 },
    /// Another rule or input is in force; nothing was written.
    Changed,
    /// There is no such schedule, or it cannot be read.
    Unknown,
}

/// Writes jobs of a schedule apart from its ticks, at most 200: each with its id, a tick (ms), and overrides as JSON.
/// With `becomes_last`, later ticks wait for the newest. Safe to repeat: an id that exists becomes no second job.
pub(crate) async fn run(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    name: &str,
    digest: &str,
    jobs: &[(JobId, u64, String)],
    becomes_last: bool,
) -> Result<Ran> {
    let mut call = scripts::SCHEDULE_RUN.on(keys);
    call.arg(name).arg(digest).arg(u8::from(becomes_last));
    for (id, due_ms, overrides) in jobs {
        call.arg(due_ms).arg(id.as_str()).arg(overrides);
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "ran" => Ok(Ran::Done { jobs: reply.next()? }),
        "changed" => Ok(Ran::Changed),
        "unknown" => Ok(Ran::Unknown),
        word => Err(reply.unexpected(word)),
    }
}

/// Removes a schedule. Returns whether there was one.
pub(crate) async fn remove(conn: &mut impl Connection, keys: &TaskKeys, name: &str) -> Result<bool> {
    let mut reply = scripts::SCHEDULE_REMOVE.on(keys).arg(name).call(conn).await?;
    Ok(reply.next::<String>()? == "removed")
}

/// The schedules of a table in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScheduleTotals {
    pub(crate) schedules: u64,
    pub(crate) fired: u64,
    pub(crate) overlapped: u64,
    pub(crate) missed: u64,
    pub(crate) paused: u64,
    /// When the first tick of all is to be fired.
    pub(crate) first_at_ms: Option<u64>,
    pub(crate) now_ms: u64,
    /// The workers that were heard from within 15 s.
    pub(crate) keepers: u64,
}

/// The number of schedules, the counts, the first tick, and the number of workers.
type TotalsReply = (u64, Vec<Option<Text>>, Vec<(Text, f64)>, u64);

/// Reads the totals of a table, at a cost that hardly grows with the number of schedules.
pub(crate) async fn totals(conn: &mut impl Connection, keys: &TaskKeys) -> Result<ScheduleTotals> {
    // The clock is that of the node with the table.
    let (now_ms, _) = read(conn, keys, &[]).await?;
    let mut pipe = redis::pipe();
    pipe.cmd("HLEN").arg(keys.get(Key::ScheduleRule));
    pipe.cmd("HMGET").arg(keys.get(Key::Meta));
    pipe.arg("ticksFired").arg("ticksOverlapped").arg("ticksMissed").arg("ticksPaused");
    pipe.cmd("ZRANGE").arg(keys.get(Key::Schedules)).arg(0).arg(0).arg("WITHSCORES");
    // Workers that are dead since the clock went back have later times. A live one may have reported since the read.
    let (from_ms, to_ms) = (now_ms.saturating_sub(SILENT_MS), now_ms + SILENT_MS);
    pipe.cmd("ZCOUNT").arg(keys.get(Key::ScheduleKeepers)).arg(from_ms).arg(to_ms);
    let (schedules, ticks, first, keepers): TotalsReply = pipe.call(conn, "schedule_read").await?;
    let count = |ticks: &Option<Text>| ticks.as_ref().and_then(|Text(count)| stored_number(count)).unwrap_or(0);
    let count = |at: usize| ticks.get(at).map_or(0, count);
    Ok(ScheduleTotals {
        schedules,
        fired: count(0),
        overlapped: count(1),
        missed: count(2),
        paused: count(3),
        first_at_ms: first.first().map(|(_, at)| stored_score(*at)),
        now_ms,
        keepers,
    })
}

/// The word of a source in Redis.
const fn source_word(source: ScheduleSource) -> &'static str {
    match source {
        ScheduleSource::Code => "code",
        ScheduleSource::RunTime => "put",
    }
}
