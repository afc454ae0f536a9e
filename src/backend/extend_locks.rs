//! `lua/extend_locks.lua`: a heartbeat.

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Result;
use crate::job::id::JobId;
use crate::unix_time::to_ms;

/// The answer to a heartbeat.
#[derive(Debug)]
pub(crate) struct Beaten {
    pub(crate) epoch: u64,
    pub(crate) interval: Duration,
    pub(crate) lost: Vec<u64>,
    pub(crate) cancelled: Vec<u64>,
    /// When the options in force were declared, ms by the server's clock; 0 if the server has lost them.
    pub(crate) declared_at: u64,
    /// The number of candidates before this heartbeat.
    pub(crate) candidates: u64,
    /// The number of active jobs before this heartbeat.
    pub(crate) active: u64,
}

/// Extends the locks of `extend`, and asks about those of `watch` without extending them; together at most `BEAT_BATCH`
/// jobs, each with its fence.
pub(crate) async fn extend_locks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    ask: Duration,
    extend: &[(JobId, u64)],
    watch: &[(JobId, u64)],
) -> Result<Beaten> {
    let mut call = scripts::EXTEND_LOCKS.on(keys);
    call.arg(worker).arg(to_ms(ask)).arg(extend.len()).arg(watch.len());
    let jobs = || extend.iter().chain(watch);
    call.args(jobs().map(|(id, _)| id.as_str())).args(jobs().map(|(_, fence)| fence));
    let mut reply = call.answer(conn).await?;
    Ok(Beaten {
        epoch: reply.next()?,
        interval: Duration::from_millis(reply.next()?),
        lost: reply.next()?,
        cancelled: reply.next()?,
        declared_at: reply.next()?,
        candidates: reply.next()?,
        active: reply.next()?,
    })
}
