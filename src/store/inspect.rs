//! `lua/inspect.lua`: reads one job.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::{Reply, Text};
use super::scripts;
use crate::error::Error;
use crate::job::deferred::Deferred;
use crate::job::state::JobState;
use crate::limits::stored_number;

/// What tells how a job ended, or stands.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) state: JobState,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) error: String,
    pub(crate) deferred: Deferred,
}

/// One job as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Inspected {
    pub(crate) job: StoredJob,
    /// The score of its place, or the token under which it is held; empty while it waits.
    pub(crate) stamp: String,
    /// JSON of the overrides of its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) max_count: Option<u32>,
    /// Empty for the normal one.
    pub(crate) priority: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) waiting_since_ms: Option<u64>,
    /// How it was recovered last; empty where it never was.
    pub(crate) recovery: String,
    /// Until when it must have begun.
    pub(crate) expires_at_ms: Option<u64>,
    /// Why its cancel was asked for while it is held; empty when it was not.
    pub(crate) cancelling: String,
    /// Whether it was silent since the snapshot.
    /// How far it has come, as it is stored; empty where nothing is.
    pub(crate) progress: String,
    /// Its outcome, where one is stored and the hook is to run.
    pub(crate) outcome: String,
    pub(crate) is_candidate: bool,
    pub(crate) payload_bytes: usize,
    pub(crate) result_bytes: usize,
    /// As it is stored, with some bytes of its own.
    pub(crate) checkpoint_bytes: usize,
}

/// Reads a job without its values; `None` when it never was, or was trimmed.
pub(crate) async fn inspect(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Inspected>, Error> {
    let mut call = scripts::INSPECT.on(keys);
    let mut reply = call.arg(id).call(conn).await?;
    if reply.next::<String>()? != "found" {
        return Ok(None);
    }
    let state = reply.next::<String>()?.parse()?;
    let stamp = text(&mut reply)?;
    let job = StoredJob {
        state,
        failed_attempts: text(&mut reply)?.parse().unwrap_or(0),
        stalled_count: text(&mut reply)?.parse().unwrap_or(0),
        error: text(&mut reply)?,
        deferred: Deferred::from_wire(&text(&mut reply)?),
    };
    Ok(Some(Inspected {
        job,
        stamp,
        overrides: text(&mut reply)?,
        max_count: text(&mut reply)?.parse().ok(),
        priority: text(&mut reply)?,
        dispatched_at_ms: stored_number(&text(&mut reply)?),
        waiting_since_ms: stored_number(&text(&mut reply)?),
        recovery: text(&mut reply)?,
        expires_at_ms: stored_number(&text(&mut reply)?),
        cancelling: text(&mut reply)?,
        progress: text(&mut reply)?,
        outcome: text(&mut reply)?,
        is_candidate: reply.next::<u8>()? == 1,
        payload_bytes: reply.next()?,
        result_bytes: reply.next()?,
        checkpoint_bytes: reply.next()?,
    }))
}

fn text(reply: &mut Reply) -> Result<String, Error> {
    reply.next().map(|Text(text)| text)
}
