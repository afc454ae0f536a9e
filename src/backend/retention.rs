//! Ends and removes jobs by age: those that no worker began in time (`lua/expire.lua`), and old terminal ones (`lua/trim.lua`).

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::scripts;
use crate::error::Result;
use crate::limits::MIN_AGE_MS;

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trimmed {
    /// How many jobs ended or were removed, and whether more may follow at once.
    Jobs { count: usize, more: bool },
    /// The server has lost the options of the task. Nothing was done.
    Undeclared,
}

/// Removes terminal jobs past the limits that the task declares, at most `limit` of them.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    worker: &str,
    limit: usize,
) -> Result<Trimmed> {
    let mut call = scripts::TRIM.on_place(keys, place);
    let name = match place {
        Key::Failed => "Failed",
        Key::Cancelled => "Cancelled",
        _ => "Completed",
    };
    let mut reply = call.arg(worker).arg(name).arg(MIN_AGE_MS).arg(limit).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "trimmed" => Ok(Trimmed::Jobs { count: reply.next()?, more: reply.next::<u8>()? == 1 }),
        "undeclared" => Ok(Trimmed::Undeclared),
        other => Err(reply.unexpected(other)),
    }
}

/// Fails jobs that no worker began in time, at most `limit` of them.
pub(crate) async fn expire(conn: &mut impl Connection, keys: &TaskKeys, worker: &str, limit: usize) -> Result<Trimmed> {
    let mut reply = scripts::EXPIRE.on(keys).arg(worker).arg(limit).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "expired" => Ok(Trimmed::Jobs { count: reply.next()?, more: reply.next::<u8>()? == 1 }),
        "undeclared" => Ok(Trimmed::Undeclared),
        other => Err(reply.unexpected(other)),
    }
}
