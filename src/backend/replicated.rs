//! Waits until replicas have a write.

use std::time::Duration;

use super::address::Role;
use super::call_context;
use super::classify::classify;
use super::connection::OwnConnection;
use super::engine::Store;
use super::keys::{Key, TaskKeys};
use super::reply::PlainCall;
use super::streams::server_time_ms;
use super::timeouts::RESPONSE_TIMEOUT;
use crate::error::{Error, Result};
use crate::options::modes::{Copies, Durability};
use crate::unix_time::to_ms;

/// The connection to the primary of the task. The write and the wait for its replicas both use it.
pub(crate) async fn at_primary(conn: &OwnConnection, keys: &TaskKeys) -> Result<OwnConnection> {
    conn.at(keys.get(Key::Meta)).await.map_err(|e| classify("wait", e))
}

impl Store {
    /// A separate connection to the primary of the task, which has answered on it. A proxy may accept connections while
    /// the server is unreachable.
    pub(crate) async fn answering(&self, role: Role, keys: &TaskKeys) -> Result<OwnConnection> {
        let conn = self.dedicated(role, None).await?;
        let asked = answering(&conn, keys);
        tokio::time::timeout(RESPONSE_TIMEOUT, asked).await.unwrap_or_else(|_| Err(Error::timed_out()))
    }
}

/// The connection to the primary of the task, which has answered on it.
pub(crate) async fn answering(conn: &OwnConnection, keys: &TaskKeys) -> Result<OwnConnection> {
    let mut conn = at_primary(conn, keys).await?;
    server_time_ms(&mut conn).await?;
    Ok(conn)
}

/// Waits until this many replicas have all writes to the task so far, or the time is over. Returns how many have them.
///
/// `WAIT` counts the writes of its own connection. If that connection wrote nothing, for example because all jobs
/// existed, `WAIT` returns at once. So this writes something first.
pub(crate) async fn copied(conn: &mut OwnConnection, keys: &TaskKeys, copies: Copies) -> Result<u32> {
    let mut wait = redis::pipe();
    wait.cmd("HINCRBY").arg(keys.get(Key::Meta)).arg("replicated").arg(1).ignore();
    wait.cmd("WAIT").arg(copies.replicas).arg(to_ms(copies.within).max(1));
    let (acked,): (u32,) = wait.call(conn, "wait").await?;
    Ok(acked)
}

/// A call's answer, and an error if fewer replicas than requested have its write.
pub(crate) type Copied<T> = (T, Result<()>);

/// Makes a call that writes, and waits for replicas if its durability asks for them.
///
/// `wrote` says whether an answer means that there is a write to wait for. The call uses a separate connection, so that
/// no other call waits for it.
pub(crate) async fn ask_copied<T, F>(
    store: &Store,
    keys: &TaskKeys,
    durability: Durability,
    time: Duration,
    wrote: fn(&T) -> bool,
    call: impl Fn(OwnConnection) -> F,
) -> Result<Copied<T>>
where
    F: Future<Output = Result<T>>,
{
    let Some(copies) = durability.copies() else { return Ok((store.ask(time, call).await?, Ok(()))) };
    store.ready().await?;
    let made = async {
        let conn = store.dedicated(Role::Replicated, None).await?;
        let mut conn = at_primary(&conn, keys).await?;
        let answer = call(conn.clone()).await?;
        let enough = if wrote(&answer) { enough(&mut conn, keys, copies).await? } else { Ok(()) };
        Ok((answer, enough))
    };
    let made = call_context::within(time + copies.within, Error::late, store.steady(made)).await;
    made.map_err(|e| e.at(store.place()))
}

/// Waits until the requested number of replicas has the writes to the task. The inner error means that fewer had them
/// in time.
pub(crate) async fn enough(conn: &mut OwnConnection, keys: &TaskKeys, copies: Copies) -> Result<Result<()>> {
    let (acked, replicas) = (copied(conn, keys, copies).await?, copies.replicas);
    Ok(if acked < replicas { Err(Error::NotReplicated { acked, replicas }) } else { Ok(()) })
}
