//! The wake marker, and the connection that blocks on it.

use std::time::Duration;

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::PlainCall;
use crate::error::Result;

/// A marker that was taken, for the task at this position of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Marker(usize),
    /// There may be work, if the worker that took the other marker is frozen.
    Spare(usize),
}

/// Blocks until one of the tasks has a wake marker, and takes it; or until `timeout`.
pub(crate) async fn wait_for_wake(
    conn: &mut impl Connection,
    tasks: &[&TaskKeys],
    timeout: Duration,
) -> Result<Option<Taken>> {
    let names: Vec<&str> = tasks.iter().map(|keys| keys.get(Key::Wake)).collect();
    // Zero would block forever.
    let seconds = timeout.as_secs_f64().max(0.001);
    let popped: Option<(String, String, String)> =
        redis::cmd("BZPOPMIN").arg(&names).arg(format!("{seconds:.3}")).call(conn, "wake").await?;
    Ok(popped.and_then(|(name, member, _)| {
        let task = names.iter().position(|known| *known == name)?;
        Some(if member == SPARE { Taken::Spare(task) } else { Taken::Marker(task) })
    }))
}

/// The marker for a worker that checks a moment later; `lua/lib/wake.lua` writes it.
const SPARE: &str = "spare";

/// Sets a marker, or puts one back, for a worker that can use it.
pub(crate) async fn mark_wake(conn: &mut (impl Connection + Send), keys: &TaskKeys) -> Result<()> {
    redis::cmd("ZADD").arg(keys.get(Key::Wake)).arg(0).arg("marker").call(conn, "wake").await
}

/// The server's number for this connection, for [`unblock`].
pub(crate) async fn client_id(conn: &mut impl Connection) -> Result<u64> {
    redis::cmd("CLIENT").arg("ID").call(conn, "wake").await
}

/// Ends the block of another connection, whose call then returns as after its time-out.
pub(crate) async fn unblock(conn: &mut impl Connection, client: u64) -> Result<()> {
    redis::cmd("CLIENT").arg("UNBLOCK").arg(client).call(conn, "wake").await
}
