//! `lua/flow_retry.lua`: lets what did not complete of an instance run once more.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// What is ready in this run is to be opened.
    Run(u64),
    /// So many nodes are open: handlers of them may run.
    Busy(u64),
    /// One of the nodes has completed meanwhile: they are to be looked at once more.
    Moved,
    /// It stands elsewhere by now, or nothing of it is to run again.
    Changed,
    Unknown,
}

/// Begins a new run with these nodes, in these states, where the instance is in the turn that the caller saw.
pub(crate) async fn retry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    seen: u64,
    nodes: &[(u32, String)],
) -> Result<Again, Error> {
    let mut call = scripts::FLOW_RETRY.on(keys);
    call.arg(instance).arg(seen);
    for (node, state) in nodes {
        call.arg(node).arg(state);
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "again" => Ok(Again::Run(reply.next()?)),
        "busy" => Ok(Again::Busy(reply.next()?)),
        "moved" => Ok(Again::Moved),
        "changed" => Ok(Again::Changed),
        _ => Ok(Again::Unknown),
    }
}
