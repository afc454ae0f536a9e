//! Waits until replicas have what was written.

use super::connection::OwnConnection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use crate::error::Error;
use crate::options::modes::Copies;
use crate::times::to_ms;

/// The connection to the primary of the task, on which both the write and the wait for its copies are made.
pub(crate) async fn at_primary(conn: &OwnConnection, keys: &TaskKeys) -> Result<OwnConnection, Error> {
    conn.at(keys.get(Key::Meta)).await.map_err(|e| classify("wait", e))
}

/// Waits until so many replicas have what was written to the task so far, or the time is over. Returns how many have it.
///
/// `WAIT` counts the writes of its own connection: on one that wrote nothing, as behind a dispatch of jobs that are there already, it answers
/// at once that all replicas have it. So something is always written first, behind everything else of the task.
pub(crate) async fn copied(conn: &mut OwnConnection, keys: &TaskKeys, copies: Copies) -> Result<u32, Error> {
    let mut wait = redis::pipe();
    wait.cmd("HINCRBY").arg(keys.get(Key::Meta)).arg("replicated").arg(1).ignore();
    wait.cmd("WAIT").arg(copies.replicas).arg(to_ms(copies.within).max(1));
    let (acked,): (u32,) = wait.query_async(conn).await.map_err(|e| classify("wait", e))?;
    Ok(acked)
}
