//! What keepers, producers and tools do to schedules, in several calls of scripts (`lua/schedule_*.lua`).

use super::address::Role;
use super::call_context;
use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys::TaskKeys;
use super::schedule_firing::{MOST_COPIED, tick_json};
pub(crate) use super::schedule_info::info_of;
use super::schedule_put::{ATTEMPTS, Wanted, put_over};
use super::schedules::{self, Put, Ran, StoredSchedule};
use super::tables::Tables;
use super::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::limits::{BATCH, LARGE};
use crate::schedule::ids::by_hand_id;
use crate::schedule::policy::ScheduleSource;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::StoredRule;

/// The most jobs of a backfill.
const MOST_BACKFILLED: usize = 10_000;

/// Writes a schedule of a task into its partition. An input over 512 KiB travels on a connection of its own.
///
/// # Errors
/// `Unsupported` if the schedule keeps changing, and those of every call.
pub(crate) async fn put(
    store: &Store,
    tables: &Tables,
    name: &str,
    source: ScheduleSource,
    (schedule, digest): (&Schedule, &str),
    input: &[u8],
    by: &str,
) -> Result<Put> {
    tables.asked(store).await?;
    let wanted = &Wanted { name, source, stamp: 0, by, schedule, digest, input };
    let mut put = put_into(store, &tables.of(name), wanted).await?;
    if let Put::Partitions(count) = put {
        tables.learn(count);
        put = put_into(store, &tables.of(name), wanted).await?;
    }
    match put {
        Put::Due | Put::Again | Put::Partitions(_) => Err(Error::Unsupported {
            what: format!("the schedule {name} keeps changing, or the server's clock jumped; repeat the call"),
        }),
        put => Ok(put),
    }
}

/// Writes a schedule into this table.
async fn put_into(store: &Store, keys: &TaskKeys, wanted: &Wanted<'_>) -> Result<Put> {
    let bytes = wanted.input.len();
    if bytes > LARGE {
        let turn = store.write_turns().take(store.dispatch_timeout).await.ok_or_else(Error::timed_out)?;
        return turn.hold(apart(store, Role::Shared, bytes, async |conn| put_over(conn, keys, wanted).await)).await;
    }
    store.ask(RESPONSE_TIMEOUT, |mut conn| async move { put_over(&mut conn, keys, wanted).await }).await
}

/// Makes a call with this many bytes on a connection of its own.
pub(crate) async fn apart<T>(
    store: &Store,
    role: Role,
    bytes: usize,
    call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T>,
) -> Result<T> {
    store.ready().await?;
    let primary_epoch = store.primary_epoch();
    let made = async {
        let mut conn = store.dedicated(role, None).await?;
        call(&mut conn).await
    };
    let made = call_context::within(response_time(bytes), Error::late, made);
    store.steady_since(primary_epoch, made).await.map_err(|e| e.at(store.place()))
}

/// Writes a job of the schedule now, apart from its ticks. Returns its id; `None` if there is no such schedule.
///
/// # Errors
/// `Unsupported` if the schedule keeps changing or cannot be read, and those of every call.
pub(crate) async fn run_now(store: &Store, tables: &Tables, name: &str, by: &str) -> Result<Option<JobId>> {
    for _ in 0..ATTEMPTS {
        let Some((now_ms, row)) = get(store, tables, name).await? else { return Ok(None) };
        readable(&row).map(drop)?;
        let keys = &*tables.of(name);
        let id = by_hand_id(name, now_ms, now_ms, (keys.part(), keys.parts()));
        let jobs = &[(id.clone(), now_ms, tick_json(name, now_ms, row.ledger.last_ms)?)];
        match run(store, keys, &row, jobs, true).await? {
            Ran::Done { .. } => {
                tracing::debug!(task = keys.task(), schedule = name, by, job_id = %id, "a schedule was run by hand");
                return Ok(Some(id));
            }
            Ran::Changed => {}
            Ran::Unknown => return Ok(None),
        }
    }
    Err(Error::Unsupported { what: format!("the schedule {name} keeps changing; repeat the call") })
}

async fn run(
    store: &Store,
    keys: &TaskKeys,
    row: &StoredSchedule,
    jobs: &[(JobId, u64, String)],
    becomes_last: bool,
) -> Result<Ran> {
    let (name, digest) = (row.name.as_str(), row.digest.as_str());
    let call = |mut conn| async move { schedules::run(&mut conn, keys, name, digest, jobs, becomes_last).await };
    store.ask(RESPONSE_TIMEOUT, call).await
}

/// Writes a job for each nominal time of the schedule in `from_ms..to_ms`, apart from its ticks. Returns how many;
/// `None` if there is no such schedule. A dry run only counts them.
///
/// # Errors
/// `Config` if the range is empty, ends after the server's time, or has over 10,000 ticks. `Unsupported` if the schedule
/// changes meanwhile or cannot be read, and those of every call.
pub(crate) async fn backfill(
    store: &Store,
    tables: &Tables,
    name: &str,
    from_ms: u64,
    to_ms: u64,
    dry_run: bool,
) -> Result<Option<u64>> {
    let Some((now_ms, row)) = get(store, tables, name).await? else { return Ok(None) };
    let schedule = readable(&row)?;
    let ticks = ticks_between(&schedule, (from_ms, to_ms), now_ms)?;
    if dry_run {
        return Ok(Some(ticks.len() as u64));
    }
    let keys = &*tables.of(name);
    let part = (keys.part(), keys.parts());
    let mut jobs = Vec::with_capacity(ticks.len());
    for (at, due_ms) in ticks.iter().enumerate() {
        let previous = at.checked_sub(1).map(|before| ticks[before]);
        jobs.push((by_hand_id(name, *due_ms, now_ms, part), *due_ms, tick_json(name, *due_ms, previous)?));
    }
    let (most, mut written) = ((MOST_COPIED / row.input_bytes.max(1)).clamp(1, BATCH), 0);
    for jobs in jobs.chunks(most) {
        match run(store, keys, &row, jobs, false).await? {
            Ran::Done { .. } => written += jobs.len() as u64,
            Ran::Changed | Ran::Unknown => {
                let what = format!("the schedule {name} changed meanwhile; {written} jobs are written");
                return Err(Error::Unsupported { what });
            }
        }
    }
    Ok(Some(written))
}

/// The nominal times of a schedule in a range.
fn ticks_between(schedule: &Schedule, (from_ms, to_ms): (u64, u64), now_ms: u64) -> Result<Vec<u64>> {
    let refuse = |field: &str, value: u64, rule: &str, fix: &str| {
        Err(Error::Config(ConfigErrors::from(ConfigError::new(field, format!("{value} ms"), rule, fix))))
    };
    if to_ms > now_ms {
        return refuse("to", to_ms, "must not be after the server's time", "end the range now or earlier");
    }
    if from_ms >= to_ms {
        return refuse("from", from_ms, "must be before the end of the range", "exchange the two times");
    }
    let (mut ticks, mut after) = (Vec::new(), from_ms.saturating_sub(1));
    while let Some(due_ms) = schedule.next_after(after).filter(|due_ms| *due_ms < to_ms) {
        if ticks.len() == MOST_BACKFILLED {
            return refuse("to", to_ms, "must leave at most 10,000 ticks in the range", "backfill in several calls");
        }
        ticks.push(due_ms);
        after = due_ms;
    }
    Ok(ticks)
}

/// The rule of a row.
fn readable(row: &StoredSchedule) -> Result<Schedule> {
    let rule = StoredRule::read(&row.json).ok().filter(|_| row.is_readable);
    rule.ok_or_else(|| Error::Unsupported {
        what: format!("the schedule {} cannot be read: its data is damaged, or a newer version wrote it", row.name),
    })
}

/// Removes a schedule. Returns whether there was one.
pub(crate) async fn remove(store: &Store, tables: &Tables, name: &str) -> Result<bool> {
    tables.asked(store).await?;
    let keys = &*tables.of(name);
    store.ask(RESPONSE_TIMEOUT, |mut conn| async move { schedules::remove(&mut conn, keys, name).await }).await
}

/// Pauses a schedule: its ticks make no jobs. `None` if there is no such schedule; `false` if it was paused before.
pub(crate) async fn pause(store: &Store, tables: &Tables, name: &str, by: &str, reason: &str) -> Result<Option<bool>> {
    tables.asked(store).await?;
    let keys = &*tables.of(name);
    let call = |mut conn| async move { schedules::pause(&mut conn, keys, name, by, reason).await };
    store.ask(RESPONSE_TIMEOUT, call).await
}

/// Ends the pause of a schedule. `None` if there is no such schedule; `false` if it was not paused.
pub(crate) async fn resume(store: &Store, tables: &Tables, name: &str) -> Result<Option<bool>> {
    tables.asked(store).await?;
    let keys = &*tables.of(name);
    store.ask(RESPONSE_TIMEOUT, |mut conn| async move { schedules::resume(&mut conn, keys, name).await }).await
}

/// A schedule, and the server's time, ms.
pub(crate) async fn get(store: &Store, tables: &Tables, name: &str) -> Result<Option<(u64, StoredSchedule)>> {
    tables.asked(store).await?;
    let keys = &*tables.of(name);
    let call = |mut conn| async move { schedules::read(&mut conn, keys, &[name]).await };
    let (now_ms, mut rows) = store.ask(RESPONSE_TIMEOUT, call).await?;
    Ok(rows.pop().flatten().map(|row| (now_ms, row)))
}

/// A page of the schedules of a task, with the server's time, ms, and the cursor of the next page. A cursor is a
/// partition and a place in it; `(0, 0)` begins. A schedule may be in two pages.
pub(crate) async fn page(
    store: &Store,
    tables: &Tables,
    (part, from): (u32, u64),
    most: usize,
) -> Result<(u64, Vec<StoredSchedule>, Option<(u32, u64)>)> {
    let all = tables.asked(store).await?;
    let Some(keys) = all.get(part as usize) else { return Ok((0, Vec::new(), None)) };
    let call = |mut conn| async move { page_over(&mut conn, keys, from, most).await };
    let (now_ms, rows, next) = store.ask(RESPONSE_TIMEOUT, call).await?;
    let next = match next {
        0 => Some((part + 1, 0)).filter(|(part, _)| (*part as usize) < all.len()),
        next => Some((part, next)),
    };
    Ok((now_ms, rows, next))
}

/// The most rows of one read.
pub(crate) const ROWS: usize = 100;

/// A page of the schedules of one partition, with the server's time and the place of the next page; 0 at the end.
pub(crate) async fn page_over(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    from: u64,
    most: usize,
) -> Result<(u64, Vec<StoredSchedule>, u64)> {
    let (names, next) = schedules::list(conn, keys, from, most.clamp(1, ROWS)).await?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut now_ms, mut rows) = (0, Vec::with_capacity(names.len()));
    // A scan may return more names than it was asked for.
    for names in names.chunks(ROWS) {
        let (now, found) = schedules::read(conn, keys, names).await?;
        now_ms = now;
        rows.extend(found.into_iter().flatten());
    }
    Ok((now_ms, rows, next))
}
