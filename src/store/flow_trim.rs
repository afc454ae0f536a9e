//! `lua/flow_trim.lua`: removes instances of a workflow that ended long ago.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::scripts;
use crate::error::Error;
use crate::limits::MIN_AGE_MS;
use crate::options::retention::LimitMs;

/// Removes some from this place. Returns how many, and whether others may follow at once.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    limit: LimitMs,
) -> Result<(u64, bool), Error> {
    let mut call = scripts::FLOW_TRIM.on_place(keys, place);
    let age = if limit.remove_at_once { Some(MIN_AGE_MS) } else { limit.max_age_ms };
    call.arg(age.unwrap_or(u64::from(u32::MAX) * 1000).max(MIN_AGE_MS));
    call.arg(limit.max_count.map_or_else(|| "-".to_owned(), |count| count.to_string())).arg(MIN_AGE_MS);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let (gone, more): (u64, u8) = (reply.next()?, reply.next()?);
    Ok((gone, more > 0))
}

/// Writes for how long ended instances are kept: for whoever looks after the workflow.
pub(crate) async fn keep(conn: &mut impl Connection, keys: &TaskKeys, limit: LimitMs) -> Result<(), Error> {
    let text = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let at_once = u8::from(limit.remove_at_once);
    let mut cmd = redis::cmd("HSET");
    cmd.arg(keys.get(Key::Meta)).arg("keep");
    cmd.arg(format!("{at_once} {} {}", text(limit.max_age_ms), text(limit.max_count)));
    cmd.query_async(conn).await.map_err(|e| classify("meta", e))
}

/// For how long ended instances are kept; `None` where nobody wrote that.
pub(crate) async fn kept(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<LimitMs>, Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(keys.get(Key::Meta)).arg("keep");
    let text: Option<String> = cmd.query_async(conn).await.map_err(|e| classify("meta", e))?;
    let text = text.unwrap_or_default();
    let mut words = text.split(' ');
    let (Some(at_once), Some(age), Some(count)) = (words.next(), words.next(), words.next()) else { return Ok(None) };
    Ok(Some(LimitMs { remove_at_once: at_once == "1", max_age_ms: age.parse().ok(), max_count: count.parse().ok() }))
}
