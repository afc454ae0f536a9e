//! Advances instances of workflows: nodes end (`lua/flow_advance.lua`, `lua/flow_visit.lua`), open
//! (`lua/flow_open.lua`), and may begin (`lua/flow_enter.lua`).

use super::start::{ToSend, to_send};
use crate::backend::connection::Connection;
use crate::backend::keys::TaskKeys;
use crate::backend::reply::Reply;
use crate::backend::scripts;
use crate::error::Result;
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
pub(crate) async fn advance(conn: &mut impl Connection, keys: &TaskKeys, ended: &[EndedNode]) -> Result<Advanced> {
    let ends = ended.iter().map(|EndedNode { id, end, said }| (id.words(), end.as_str(), said.as_slice()));
    news(&mut scripts::FLOW_ADVANCE.on(keys).args(ends).answer(conn).await?, keys)
}

/// Visits more dependents of an ended node, named as `<instance>/<node>/<run>`. Safe to repeat.
pub(crate) async fn visit(conn: &mut impl Connection, keys: &TaskKeys, mark: &str) -> Result<Advanced> {
    let mut words = mark.rsplitn(3, '/').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let (run, node, instance) = (word(), word(), word());
    news(&mut scripts::FLOW_VISIT.on(keys).arg(instance).arg(node).arg(run).answer(conn).await?, keys)
}

/// Opens the ready nodes of the next page of an instance. Returns what follows, and whether there are more pages. Safe to repeat.
pub(crate) async fn open(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    run: u64,
) -> Result<(Advanced, bool)> {
    let mut reply = scripts::FLOW_OPEN.on(keys).arg(instance).arg(run).answer(conn).await?;
    let more: u8 = reply.next()?;
    Ok((news(&mut reply, keys)?, more > 0))
}

/// Asks whether the handlers of these nodes may begin, at most 200 of one workflow. Also returns what follows from
/// nodes that this call cancels.
pub(crate) async fn enter(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    nodes: &[NodeId],
) -> Result<(Vec<bool>, Advanced)> {
    let mut reply = scripts::FLOW_ENTER.on(keys).args(nodes.iter().map(NodeId::words)).answer(conn).await?;
    let answer = |_: &NodeId| match reply.next::<String>()?.as_str() {
        "go" => Ok(true),
        "stale" => Ok(false),
        other => Err(reply.unexpected(other)),
    };
    let answers = nodes.iter().map(answer).collect::<Result<_>>()?;
    Ok((answers, news(&mut reply, keys)?))
}

/// The end of a reply, see `add_news` of `lua/lib/flow_reply.lua`.
pub(super) fn news(reply: &mut Reply, keys: &TaskKeys) -> Result<Advanced> {
    Ok(Advanced { entries: counted(reply)?, sends: to_send(reply, keys)? })
}

/// A number, then as many words.
pub(super) fn counted(reply: &mut Reply) -> Result<Vec<String>> {
    let count: usize = reply.next()?;
    (0..count).map(|_| reply.text()).collect()
}
