//! Advances instances of workflows: nodes end (`lua/flow_advance.lua`, `lua/flow_visit.lua`), open
//! (`lua/flow_open.lua`), and may begin (`lua/flow_enter.lua`).

use super::start::{ToSend, to_send};
use crate::backend::connection::Connection;
use crate::backend::keys::TaskKeys;
use crate::backend::reply::{Reply, Text};
use crate::backend::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEnd {
    Completed,
    Failed,
    Cancelled,
    /// The instance of its graph is missing: it never ran, or was lost.
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

#[derive(Clone, Debug)]
pub(crate) struct EndedNode {
    pub(crate) id: NodeId,
    pub(crate) end: NodeEnd,
    /// Its value or its failure as JSON; empty if it has none.
    pub(crate) said: Vec<u8>,
}

/// What must be done next.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// Outbox entries to carry out at once.
    pub(crate) entries: Vec<String>,
    pub(crate) sends: Vec<ToSend>,
}

impl Advanced {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.sends.is_empty()
    }
}

/// Records the ends of at most 200 nodes of one workflow. Safe to repeat.
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

/// Visits more dependents of an ended node, named as `<instance>/<node>/<run>`. Safe to repeat.
pub(crate) async fn visit(conn: &mut impl Connection, keys: &TaskKeys, mark: &str) -> Result<Advanced, Error> {
    let mut words = mark.rsplitn(3, '/');
    let (run, node, instance) = (words.next(), words.next(), words.next());
    let mut call = scripts::FLOW_VISIT.on(keys);
    call.arg(instance.unwrap_or_default()).arg(node.unwrap_or_default()).arg(run.unwrap_or_default());
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    news(&mut reply, keys)
}

/// Opens the ready nodes of the next page of an instance. Returns what follows, and whether there are more pages. Safe to repeat.
pub(crate) async fn open(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    run: u64,
) -> Result<(Advanced, bool), Error> {
    let mut call = scripts::FLOW_OPEN.on(keys);
    call.arg(instance).arg(run);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let more: u8 = reply.next()?;
    Ok((news(&mut reply, keys)?, more > 0))
}

/// Asks whether the handlers of these nodes may begin, at most 200 of one workflow. Also returns what follows from
/// nodes that this call cancels.
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

/// The end of a reply, see `add_news` of `lua/lib/flow.lua`.
pub(super) fn news(reply: &mut Reply, keys: &TaskKeys) -> Result<Advanced, Error> {
    Ok(Advanced { entries: counted(reply)?, sends: to_send(reply, keys)? })
}

/// A number, then as many words.
pub(super) fn counted(reply: &mut Reply) -> Result<Vec<String>, Error> {
    let count: usize = reply.next()?;
    (0..count).map(|_| reply.next().map(|Text(word)| word)).collect()
}
