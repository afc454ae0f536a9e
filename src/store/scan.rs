//! `lua/scan.lua`: names some of the fields or members of a key.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use crate::error::Error;

/// How many bytes of values one call may make the server move, about.
const BYTES: u64 = 1024 * 1024;

/// The most buckets of one call.
const MOST: u64 = 250;

/// Names some of the fields or members behind the cursor, which is 0 at the beginning and at the end.
pub(crate) async fn scan(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    cursor: u64,
    count: u64,
) -> Result<(u64, Vec<String>), Error> {
    let mut reply = scripts::SCAN.on_place(keys, place).arg(cursor).arg(count).call(conn).await?;
    let _: String = reply.next()?;
    let next: String = reply.next()?;
    let names: Vec<Text> = reply.next()?;
    Ok((next.parse().unwrap_or(0), names.into_iter().map(|Text(name)| name).collect()))
}

/// How many buckets one call of [`scan`] may look at, by what the values of the key weigh: the server moves them, if only within
/// itself.
pub(crate) async fn scan_count(conn: &mut impl Connection, keys: &TaskKeys, place: Key) -> Result<u64, Error> {
    let ask = |name: &str| {
        let mut cmd = redis::cmd(name);
        cmd.arg(keys.get(place));
        cmd
    };
    let kind: String = ask("TYPE").query_async(conn).await.map_err(|e| classify("scan", e))?;
    if kind != "hash" {
        return Ok(MOST);
    }
    let fields: u64 = ask("HLEN").query_async(conn).await.map_err(|e| classify("scan", e))?;
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(keys.get(place)).arg("SAMPLES").arg(20);
    // Who may not ask is given few at a time.
    let bytes: Option<u64> = usage.query_async(conn).await.unwrap_or(Some(fields * BYTES / 10));
    let each = bytes.unwrap_or(0) / fields.max(1);
    Ok((BYTES / each.max(1)).clamp(1, MOST))
}

/// Some held ids behind the cursor with their tokens.
pub(crate) async fn locks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    cursor: u64,
    count: u64,
) -> Result<(u64, Vec<(String, String)>), Error> {
    let mut cmd = redis::cmd("HSCAN");
    cmd.arg(keys.get(Key::Locks)).arg(cursor).arg("COUNT").arg(count);
    let (next, pairs): (u64, Vec<Text>) = cmd.query_async(conn).await.map_err(|e| classify("scan", e))?;
    let pair = |pair: &[Text]| (pair[0].0.clone(), pair[1].0.clone());
    Ok((next, pairs.chunks_exact(2).map(pair).collect()))
}

/// A page of a list, from its end on, the last entry first. `seen` is how many entries from the end are left out.
pub(crate) async fn page_of_list(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    list: Key,
    seen: u64,
    count: u64,
) -> Result<Vec<String>, Error> {
    let mut cmd = redis::cmd("LRANGE");
    let from_end = |entries: u64| -i64::try_from(entries).unwrap_or(i64::MAX);
    cmd.arg(keys.get(list)).arg(from_end(seen + count)).arg(from_end(seen + 1));
    let ids: Vec<Text> = cmd.query_async(conn).await.map_err(|e| classify("scan", e))?;
    Ok(ids.into_iter().rev().map(|Text(id)| id).collect())
}
