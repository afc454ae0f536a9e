//! `lua/flow_enter.lua`: asks whether the handlers of nodes may begin.

use super::connection::Connection;
use super::flow_advance::{Advanced, news};
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;

/// Whether each of the nodes may begin, all of them of the workflow of these keys, at most 200; and what follows from those that are cancelled by this.
pub(crate) async fn enter(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    nodes: &[NodeId],
) -> Result<(Vec<bool>, Advanced), Error> {
    let mut call = scripts::FLOW_ENTER.on(keys);
    for NodeId { instance, node, run, .. } in nodes {
        call.arg(instance).arg(node).arg(run);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let mut answers = Vec::with_capacity(nodes.len());
    for _ in nodes {
        answers.push(match reply.next::<String>()?.as_str() {
            "go" => true,
            "stale" => false,
            other => return Err(reply.unexpected(other)),
        });
    }
    Ok((answers, news(&mut reply, keys)?))
}
