//! What tests do to delayed jobs.

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::lanes::{FULL, RESTING};
use super::reply::PlainCall;
use super::values::columns;
use super::wake_blocking;
use crate::error::Result;

/// The delayed jobs, each with its column `snoozes`. Reads all of them: for small tasks of tests.
pub(crate) async fn delayed(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<(String, String)>> {
    let ids: Vec<String> = redis::cmd("ZRANGE").arg(keys.get(Key::Delayed)).arg(0).arg(-1).call(conn, "drain").await?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<_> = ids.iter().map(|id| crate::job::id::JobId::from_wire(id.as_str())).collect();
    let snoozes: Vec<Option<String>> = columns(conn, keys.get(Key::Snoozes), &named).await?;
    Ok(ids.into_iter().zip(snoozes.into_iter().map(Option::unwrap_or_default)).collect())
}

/// Whether the outbox of a task or of a workflow has entries.
pub(crate) async fn is_moving(conn: &mut impl Connection, keys: &TaskKeys) -> Result<bool> {
    let entries: u64 = redis::cmd("ZCARD").arg(keys.get(Key::Outbox)).call(conn, "drain").await?;
    Ok(entries > 0)
}

/// Makes a delayed job due, and wakes the workers.
pub(crate) async fn bring_forward(conn: &mut (impl Connection + Send), keys: &TaskKeys, id: &str) -> Result<()> {
    let () = redis::cmd("ZADD").arg(keys.get(Key::Delayed)).arg("XX").arg(0).arg(id).call(conn, "drain").await?;
    wake_blocking::mark_wake(conn, keys).await
}

/// Ends the rest of a task, forgets the starts that its rate counts, and wakes the workers.
pub(crate) async fn end_rest(conn: &mut (impl Connection + Send), keys: &TaskKeys) -> Result<()> {
    let full: Option<String> = redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("full").call(conn, "drain").await?;
    if full.is_none_or(|full| full == "running") {
        return Ok(());
    }
    let () = redis::cmd("HDEL").arg(keys.get(Key::Meta)).arg("full").arg("starts").call(conn, "drain").await?;
    wake_blocking::mark_wake(conn, keys).await
}

/// Ends the rests of keys, forgets the starts that their rates count, and wakes the workers.
pub(crate) async fn end_rests_of_keys(conn: &mut (impl Connection + Send), keys: &TaskKeys) -> Result<()> {
    let turns = keys.get(Key::Turns);
    let mut resting = redis::cmd("ZRANGEBYSCORE");
    let resting: Vec<String> = resting.arg(turns).arg(RESTING).arg(format!("({FULL}")).call(conn, "drain").await?;
    if resting.is_empty() {
        return Ok(());
    }
    for key in &resting {
        let () = redis::cmd("ZADD").arg(turns).arg(0).arg(key).call(conn, "drain").await?;
    }
    let () = redis::cmd("DEL").arg(keys.get(Key::LaneStarts)).call(conn, "drain").await?;
    wake_blocking::mark_wake(conn, keys).await
}

/// Makes waiting hooks due, and wakes the workers.
pub(crate) async fn bring_hooks_forward(conn: &mut (impl Connection + Send), keys: &TaskKeys) -> Result<()> {
    let ids: Vec<String> =
        redis::cmd("ZRANGE").arg(keys.get(Key::Finalizing)).arg(0).arg(-1).call(conn, "drain").await?;
    for id in &ids {
        let () = redis::cmd("ZADD").arg(keys.get(Key::Finalizing)).arg("XX").arg(0).arg(id).call(conn, "drain").await?;
    }
    if ids.is_empty() { Ok(()) } else { wake_blocking::mark_wake(conn, keys).await }
}
