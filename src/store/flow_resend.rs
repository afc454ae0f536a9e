//! `lua/flow_resend.lua`: sends open nodes once more whose jobs are not there.

use super::connection::Connection;
use super::flow_start::{ToSend, to_send};
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;

/// Those that are to be sent again, and those that are not any more, as `<instance>/<node>/<run>`.
pub(crate) async fn resend(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    nodes: &[NodeId],
) -> Result<(Vec<ToSend>, Vec<String>), Error> {
    let mut call = scripts::FLOW_RESEND.on(keys);
    for NodeId { instance, node, run, .. } in nodes {
        call.arg(instance).arg(node).arg(run);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let count: usize = reply.next()?;
    let mut lost = Vec::with_capacity(count);
    for _ in 0..count {
        let Text(mark) = reply.next()?;
        lost.push(mark);
    }
    Ok((to_send(&mut reply, keys)?, lost))
}
