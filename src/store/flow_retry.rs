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
    /// The next part is to come.
    Part,
    /// So many nodes are open: handlers of them may run.
    Busy(u64),
    /// One of the nodes has completed meanwhile: they are to be looked at once more.
    Moved,
    /// It stands elsewhere by now.
    Changed,
    Unknown,
}

/// Writes these states, at most 500, where the instance is in the turn that the caller saw; with the last part, which says how many there are in all, a new
/// run begins.
pub(crate) async fn retry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    seen: u64,
    nodes: &[(u32, String)],
    last: Option<usize>,
) -> Result<Again, Error> {
    let mut call = scripts::FLOW_RETRY.on(keys);
    call.arg(instance).arg(seen).arg(last.map_or_else(|| "-".to_owned(), |live| live.to_string()));
    for (node, state) in nodes {
        call.arg(node).arg(state);
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "again" => Ok(Again::Run(reply.next()?)),
        "part" => Ok(Again::Part),
        "busy" => Ok(Again::Busy(reply.next()?)),
        "moved" => Ok(Again::Moved),
        "changed" => Ok(Again::Changed),
        _ => Ok(Again::Unknown),
    }
}
