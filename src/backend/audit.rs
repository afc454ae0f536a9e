//! The audit of a task: reads what is stored (`lua/scan.lua`), finds faults of jobs (`lua/look.lua`), repairs them
//! (`lua/mend.lua`), and records the result (`lua/audited.lua`).

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use super::settle::SEQUENCES;
use crate::error::Result;

/// About how many bytes of values one [`scan`] may make the server copy.
const BYTES: u64 = 1024 * 1024;

/// How many buckets one [`scan`] may visit at most.
const MOST: u64 = 250;

/// The fields of `meta` that scripts read as numbers.
pub(crate) const COUNTERS: [&str; 13] = [
    "epoch",
    "interval",
    "ask",
    "fence",
    "events",
    "stalls",
    "in",
    "out",
    "outFailed",
    "tombstones",
    "largest",
    "failedSinceCompleted",
    "brokenOffSinceCompleted",
];

/// Names some of the fields or members of a key. The cursor is 0 at the beginning and at the end.
pub(crate) async fn scan(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    cursor: u64,
    count: u64,
) -> Result<(u64, Vec<String>)> {
    let mut reply = scripts::SCAN.on_place(keys, place).arg(cursor).arg(count).answer(conn).await?;
    let next: String = reply.next()?;
    let names: Vec<Text> = reply.next()?;
    Ok((next.parse().unwrap_or(0), names.into_iter().map(|Text(name)| name).collect()))
}

/// How many buckets one [`scan`] of the key may visit. Larger values allow fewer, since the server copies them.
pub(crate) async fn scan_count(conn: &mut impl Connection, keys: &TaskKeys, place: Key) -> Result<u64> {
    let key = keys.get(place);
    let kind: String = redis::cmd("TYPE").arg(key).call(conn, "scan").await?;
    if kind != "hash" {
        return Ok(MOST);
    }
    let fields: u64 = redis::cmd("HLEN").arg(key).call(conn, "scan").await?;
    let usage = redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(20).call(conn, "scan").await;
    // Without permission to read the size, assume large values.
    let bytes: Option<u64> = usage.unwrap_or(Some(fields * BYTES / 10));
    let each = bytes.unwrap_or(0) / fields.max(1);
    Ok((BYTES / each.max(1)).clamp(1, MOST))
}

/// Some held ids with their tokens. The cursor works as that of [`scan`].
pub(crate) async fn locks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    cursor: u64,
    count: u64,
) -> Result<(u64, Vec<(String, String)>)> {
    let (next, pairs): (u64, Vec<Text>) =
        redis::cmd("HSCAN").arg(keys.get(Key::Locks)).arg(cursor).arg("COUNT").arg(count).call(conn, "scan").await?;
    let pair = |pair: &[Text]| (pair[0].0.clone(), pair[1].0.clone());
    Ok((next, pairs.chunks_exact(2).map(pair).collect()))
}

/// A page of a list, from its end towards its head. The last `seen` entries are skipped.
pub(crate) async fn page_of_list(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    list: Key,
    seen: u64,
    count: u64,
) -> Result<Vec<String>> {
    let mut cmd = redis::cmd("LRANGE");
    let from_end = |entries: u64| -i64::try_from(entries).unwrap_or(i64::MAX);
    cmd.arg(keys.get(list)).arg(from_end(seen + count)).arg(from_end(seen + 1));
    let ids: Vec<Text> = cmd.call(conn, "scan").await?;
    Ok(ids.into_iter().rev().map(|Text(id)| id).collect())
}

/// A page of the entries in the lanes, after this one.
pub(crate) async fn page_of_lanes(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    last: Option<&str>,
    count: u64,
) -> Result<Vec<String>> {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(keys.get(Key::Lanes)).arg(last.map_or_else(|| "-".to_owned(), |last| format!("({last}"))).arg("+");
    let entries: Vec<Text> = cmd.arg("BYLEX").arg("LIMIT").arg(0).arg(count).call(conn, "scan").await?;
    Ok(entries.into_iter().map(|Text(entry)| entry).collect())
}

/// The faults of each job, as words separated by spaces. Each job comes with the number of its entries in the lists,
/// which were read from `began_ms` on.
pub(crate) async fn look(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    began_ms: u64,
    jobs: &[(String, u32)],
) -> Result<Vec<String>> {
    scripts::LOOK.on(keys).arg(began_ms).args(jobs).answer(conn).await?.rest()
}

/// Repairs the faults that still exist. Each job comes with its number of list entries and its faults. Returns those
/// that were repaired.
pub(crate) async fn mend(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    by: &str,
    began_ms: u64,
    jobs: &[(String, u32, String)],
) -> Result<Vec<String>> {
    scripts::MEND.on(keys).arg(by).arg(began_ms).args(jobs).answer(conn).await?.rest()
}

/// Records what an audit found. Returns whether Redis has any key of the task.
pub(crate) async fn audited(conn: &mut impl Connection, keys: &TaskKeys, found: &str) -> Result<bool> {
    let mut reply = scripts::AUDITED.on(keys).arg(found).call(conn).await?;
    Ok(reply.next::<String>()? == "noted")
}

/// Whether a script can read a counter: a whole number below 2^53, which a double holds exactly.
pub(crate) fn is_counter(value: &str) -> bool {
    value.parse::<u64>().is_ok_and(|number| number < 1 << 53)
}

/// Removes a counter of the task that is not a whole number below 2^53; with `preview` only looks. Returns whether
/// the counter was bad.
pub(crate) async fn drop_bad_counter(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    field: &str,
    preview: bool,
) -> Result<bool> {
    let value: Option<Text> = redis::cmd("HGET").arg(keys.get(Key::Meta)).arg(field).call(conn, "meta").await?;
    let is_bad = value.is_some_and(|Text(value)| !is_counter(&value));
    if is_bad && !preview {
        redis::cmd("HDEL").arg(keys.get(Key::Meta)).arg(field).call::<()>(conn, "meta").await?;
    }
    Ok(is_bad)
}

/// The worker that a field of `replies` belongs to.
pub(crate) fn worker_of(record: &str) -> &str {
    let own =
        SEQUENCES.iter().filter(|sequence| !sequence.is_empty()).find_map(|sequence| record.strip_suffix(*sequence));
    own.unwrap_or(record)
}

/// Removes a record of calls; with `preview` only looks. Returns whether it was there.
pub(crate) async fn drop_record(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    record: &str,
    preview: bool,
) -> Result<bool> {
    let command = if preview { "HEXISTS" } else { "HDEL" };
    let found: u64 = redis::cmd(command).arg(keys.get(Key::Replies)).arg(record).call(conn, "replies").await?;
    Ok(found > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_any_kind_names_its_worker() {
        for record in ["host-7-00000000", "host-7-00000000/2", "host-7-00000000/3"] {
            assert_eq!(worker_of(record), "host-7-00000000");
        }
    }
}
