//! `lua/flow_advance.lua`: tells workflows how nodes of theirs ended.

use super::connection::Connection;
use super::flow_start::{ToSend, to_send};
use super::keys::TaskKeys;
use super::reply::{Reply, Text};
use super::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;

/// How a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEnd {
    Completed,
    Failed,
    Cancelled,
    /// Its graph is not there: it never ran, or was lost.
    GraphFailed,
    GraphCancelled,
}

impl NodeEnd {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            NodeEnd::Completed => "c",
            NodeEnd::Failed => "f",
            NodeEnd::Cancelled => "x",
            NodeEnd::GraphFailed => "F",
            NodeEnd::GraphCancelled => "X",
        }
    }

    pub(crate) fn from_wire(word: &str) -> NodeEnd {
        match word {
            "c" => NodeEnd::Completed,
            "x" => NodeEnd::Cancelled,
            _ => NodeEnd::Failed,
        }
    }
}

/// A node that ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedNode {
    pub(crate) id: NodeId,
    pub(crate) end: NodeEnd,
    /// Its value, or its failure, as JSON; empty for none.
    pub(crate) said: Vec<u8>,
}

/// What is to be done next.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// Entries of the outbox that are to be carried out at once.
    pub(crate) entries: Vec<String>,
    pub(crate) sends: Vec<ToSend>,
}

impl Advanced {
    /// Whether nothing is to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.sends.is_empty()
    }
}

/// Tells of the nodes, all of them of the workflow of these keys, at most 200. It is safe to repeat.
pub(crate) async fn advance(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ended: &[EndedNode],
) -> Result<Advanced, Error> {
    let mut call = scripts::FLOW_ADVANCE.on(keys);
    for EndedNode { id, end, said } in ended {
        call.arg(&id.instance).arg(id.node).arg(id.run).arg(end.as_str()).arg(said.as_slice());
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    news(&mut reply, keys)
}

/// The end of a reply, see `add_news` of `lua/lib/flow.lua`.
pub(super) fn news(reply: &mut Reply, keys: &TaskKeys) -> Result<Advanced, Error> {
    let count: usize = reply.next()?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let Text(entry) = reply.next()?;
        entries.push(entry);
    }
    Ok(Advanced { entries, sends: to_send(reply, keys)? })
}
