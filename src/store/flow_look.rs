//! `lua/flow_look.lua`: what is to be done for the instances of a workflow.

use std::time::Duration;

use super::connection::Connection;
use super::fault::classify;
use super::flow_start::{ToSend, to_send};
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::job::id::JobId;
use crate::limits::BATCH;
use crate::times::to_ms;

/// What was found to do.
#[derive(Debug)]
pub(crate) struct FlowLook {
    /// There may be more.
    pub(crate) more: bool,
    /// What is no send, see `docs/wire-format.md`.
    pub(crate) entries: Vec<String>,
    pub(crate) sends: Vec<ToSend>,
}

/// What is older than the grace, and was not done.
pub(crate) async fn look(conn: &mut impl Connection, keys: &TaskKeys, grace: Duration) -> Result<FlowLook, Error> {
    let mut call = scripts::FLOW_LOOK.on(keys);
    call.arg(to_ms(grace)).arg(BATCH);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let (more, count): (u8, usize) = (reply.next()?, reply.next()?);
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let Text(entry) = reply.next()?;
        entries.push(entry);
    }
    Ok(FlowLook { more: more > 0, entries, sends: to_send(&mut reply, keys)? })
}

/// Takes entries off the outbox: of a workflow, or of a task.
pub(crate) async fn done(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    entries: &[impl redis::ToSingleRedisArg + Sync],
) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut cmd = redis::cmd("ZREM");
    cmd.arg(keys.get(Key::Outbox));
    for entry in entries {
        cmd.arg(entry);
    }
    cmd.query_async(conn).await.map_err(|e| classify("outbox", e))
}

/// Which of the jobs stand in the outbox of their task.
pub(crate) async fn among(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<bool>, Error> {
    let mut cmd = redis::cmd("ZMSCORE");
    cmd.arg(keys.get(Key::Outbox));
    for id in ids {
        cmd.arg(id.as_str());
    }
    let found: Vec<Option<f64>> = cmd.query_async(conn).await.map_err(|e| classify("outbox", e))?;
    Ok(found.into_iter().map(|score| score.is_some()).collect())
}

/// The tasks that nodes of the workflow have.
pub(crate) async fn tasks(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<String>, Error> {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(keys.get(Key::FlowTasks)).arg(0).arg(-1);
    let names: Vec<Text> = cmd.query_async(conn).await.map_err(|e| classify("tasks", e))?;
    Ok(names.into_iter().map(|Text(name)| name).collect())
}
