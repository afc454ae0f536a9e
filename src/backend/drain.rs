//! What tests do to delayed jobs.

use super::classify::classify;
use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::values::columns;
use super::wake_blocking;
use crate::error::Error;

/// The delayed jobs, each with its column `snoozes`. Reads all of them: for small tasks of tests.
pub(crate) async fn delayed(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<(String, String)>, Error> {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(keys.get(Key::Delayed)).arg(0).arg(-1);
    let ids: Vec<String> = cmd.query_async(conn).await.map_err(|e| classify("drain", e))?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<_> = ids.iter().map(|id| crate::job::id::JobId::from_wire(id.as_str())).collect();
    let snoozes: Vec<Option<String>> = columns(conn, keys.get(Key::Snoozes), &named).await?;
    Ok(ids.into_iter().zip(snoozes.into_iter().map(Option::unwrap_or_default)).collect())
}

/// Whether the outbox of a task or of a workflow has entries.
pub(crate) async fn is_moving(conn: &mut impl Connection, keys: &TaskKeys) -> Result<bool, Error> {
    let mut cmd = redis::cmd("ZCARD");
    cmd.arg(keys.get(Key::Outbox));
    let entries: u64 = cmd.query_async(conn).await.map_err(|e| classify("drain", e))?;
    Ok(entries > 0)
}

/// Makes a delayed job due, and wakes the workers.
pub(crate) async fn bring_forward(conn: &mut (impl Connection + Send), keys: &TaskKeys, id: &str) -> Result<(), Error> {
    let mut cmd = redis::cmd("ZADD");
    cmd.arg(keys.get(Key::Delayed)).arg("XX").arg(0).arg(id);
    let () = cmd.query_async(conn).await.map_err(|e| classify("drain", e))?;
    wake_blocking::mark_wake(conn, keys).await
}

/// Makes waiting hooks due, and wakes the workers.
pub(crate) async fn bring_hooks_forward(conn: &mut (impl Connection + Send), keys: &TaskKeys) -> Result<(), Error> {
    let classify = |e| classify("drain", e);
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(keys.get(Key::Finalizing)).arg(0).arg(-1);
    let ids: Vec<String> = cmd.query_async(conn).await.map_err(classify)?;
    for id in &ids {
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(keys.get(Key::Finalizing)).arg("XX").arg(0).arg(id);
        let () = cmd.query_async(conn).await.map_err(classify)?;
    }
    if ids.is_empty() { Ok(()) } else { wake_blocking::mark_wake(conn, keys).await }
}
