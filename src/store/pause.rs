//! `lua/pause.lua`: pauses a task.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::limits::stored_number;

/// That a task is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    /// Since when, ms.
    pub(crate) at_ms: u64,
    pub(crate) by: String,
    pub(crate) reason: String,
}

/// Pauses the task. Returns the pause that was there before, if there was one.
pub(crate) async fn pause(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    by: &str,
    reason: &str,
) -> Result<Option<Paused>, Error> {
    let mut reply = scripts::PAUSE.on(keys).arg(by).arg(reason).call(conn).await?;
    if reply.next::<String>()? == "paused" {
        return Ok(None);
    }
    let (Text(at), Text(by), Text(reason)) = (reply.next()?, reply.next()?, reply.next()?);
    Ok(Some(Paused { at_ms: stored_number(&at).unwrap_or(0), by, reason }))
}
