//! `lua/flow_enter.lua`: asks whether the handlers of nodes may begin.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;

/// Whether each of the nodes may begin, all of them of the workflow of these keys, at most 200.
pub(crate) async fn enter(conn: &mut impl Connection, keys: &TaskKeys, nodes: &[NodeId]) -> Result<Vec<bool>, Error> {
    let mut call = scripts::FLOW_ENTER.on(keys);
    for NodeId { instance, node, run, .. } in nodes {
        call.arg(instance).arg(node).arg(run);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let words: Vec<String> = reply.rest()?;
    words
        .iter()
        .map(|word| match word.as_str() {
            "go" => Ok(true),
            "stale" => Ok(false),
            other => Err(reply.unexpected(other)),
        })
        .collect()
}
