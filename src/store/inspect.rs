//! `lua/inspect.lua`: reads one job.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts::{self, Text};
use crate::error::Error;
use crate::job::deferred::Deferred;
use crate::job::state::JobState;

/// One job as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) state: JobState,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) error: String,
    pub(crate) deferred: Deferred,
}

/// Reads a job without its values; `None` when it never was, or was trimmed.
pub(crate) async fn inspect(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<StoredJob>, Error> {
    let mut call = scripts::INSPECT.on(keys);
    let mut reply = call.arg(id).call(conn).await?;
    if reply.next::<String>()? != "found" {
        return Ok(None);
    }
    let state = reply.next::<String>()?.parse()?;
    let (Text(attempt), Text(stalled), Text(error), Text(deferred)) =
        (reply.next()?, reply.next()?, reply.next()?, reply.next()?);
    Ok(Some(StoredJob {
        state,
        failed_attempts: attempt.parse().unwrap_or(0),
        stalled_count: stalled.parse().unwrap_or(0),
        error,
        deferred: Deferred::from_wire(&deferred),
    }))
}
