//! Advances instances of workflows: nodes end (`lua/flow_advance.lua`, `lua/flow_visit.lua`), open
//! (`lua/flow_open.lua`), and may begin (`lua/flow_enter.lua`).

use std::sync::Arc;

use super::start::{ToSend, to_send};
use crate::backend::connection::Connection;
use crate::backend::declare::WIRE_VERSION;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::reply::Reply;
use crate::backend::scripts;
use crate::backend::values;
use crate::error::Result;
use crate::job::node_id::NodeId;
use crate::options::overrides::Headers;

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

/// A node that ended, and the table whose outbox reports it.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) node: EndedNode,
    /// `None` if the node never had a job.
    pub(crate) table: Option<Arc<TaskKeys>>,
}

/// A task without partitions on the server of the workflow: a call that opens nodes also dispatches them.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) table: Arc<TaskKeys>,
    /// How many of the ended nodes are its jobs. They leave its outbox.
    pub(crate) ended: usize,
}

/// At most this many tasks of a call: each has ten keys.
pub(crate) const MOST_TARGETS: usize = 4;

/// The keys of a target, in the order of `lua/lib/flow_dispatch.lua`.
const TARGET_KEYS: &[Key] = &[
    Key::Payload,
    Key::Completed,
    Key::Failed,
    Key::Cancelled,
    Key::Wait,
    Key::Meta,
    Key::Events,
    Key::Wake,
    Key::DispatchedAt,
    Key::Outbox,
];

/// What must be done next.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// How many nodes the call dispatched.
    pub(crate) dispatched: usize,
    /// Tables whose outboxes the ended nodes have left.
    pub(crate) cleared: Vec<Arc<TaskKeys>>,
    /// Outbox entries to carry out at once.
    pub(crate) entries: Vec<String>,
    pub(crate) sends: Vec<ToSend>,
}

impl Advanced {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.sends.is_empty()
    }
}

/// A step of a workflow that may open nodes. Safe to repeat.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// At most 200 nodes ended: first the jobs of the targets, in their order.
    Ends(&'a [EndedNode]),
    /// More dependents of an ended node are to be visited. It is named as `<instance>/<node>/<run>`.
    Visit(&'a str),
}

/// Takes a step, and dispatches the nodes that it opens to the targets, if they are plain jobs there.
pub(crate) async fn advance(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    step: &Step<'_>,
    targets: &[Target],
) -> Result<Advanced> {
    let script = if let Step::Ends(_) = step { &scripts::FLOW_ADVANCE } else { &scripts::FLOW_VISIT };
    let mut call = script.on_tasks(keys, targets.iter().map(|target| &*target.table), TARGET_KEYS);
    match step {
        Step::Ends(ended) => {
            call.args(ended.iter().map(|EndedNode { id, end, said }| (id.words(), end.as_str(), said.as_slice())));
        }
        Step::Visit(mark) => {
            let mut words = mark.rsplitn(3, '/');
            let mut word = || words.next().unwrap_or_default();
            let (run, node, instance) = (word(), word(), word());
            call.arg(instance).arg(node).arg(run);
        }
    }
    if targets.is_empty() {
        return news(&mut call.answer(conn).await?, keys);
    }
    let named: String = targets.iter().map(|Target { table, ended }| format!(" {} {ended}", table.task())).collect();
    let mut reply = call.arg(format!("{WIRE_VERSION} {}{named}", keys.task())).answer(conn).await?;
    let dispatched = reply.next()?;
    let cleared = targets.iter().map(|target| Arc::clone(&target.table)).collect();
    Ok(Advanced { dispatched, cleared, ..news(&mut reply, keys)? })
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

/// Whether the handler of a node may begin.
#[derive(Clone, Debug)]
pub(crate) enum Entered {
    /// It may. The nodes of one call share the headers of their instance, if it has any.
    Go(Option<Arc<Headers>>),
    /// The workflow no longer wants it.
    Stale,
}

/// Asks whether the handlers of these nodes may begin, at most 200 of one workflow. `None` for those that must ask
/// again. Also returns what follows from nodes that this call cancels.
pub(crate) async fn enter(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    nodes: &[NodeId],
) -> Result<(Vec<Option<Entered>>, Advanced)> {
    let mut reply = scripts::FLOW_ENTER.on(keys).args(nodes.iter().map(NodeId::words)).answer(conn).await?;
    let words = nodes.iter().map(|_| reply.next()).collect::<Result<Vec<String>>>()?;
    let number_in = |word: &str| word.strip_prefix("go ")?.parse::<usize>().ok();
    let count = words.iter().filter_map(|word| number_in(word)).max().unwrap_or(0);
    let headers = (0..count).map(|_| Ok(headers_of(keys, &reply.text()?))).collect::<Result<Vec<_>>>()?;
    let answer = |word: &String| match (word.as_str(), number_in(word)) {
        ("go", _) => Ok(Some(Entered::Go(None))),
        (_, Some(number @ 1..)) => Ok(Some(Entered::Go(headers[number - 1].clone()))),
        ("stale", _) => Ok(Some(Entered::Stale)),
        ("later", _) => Ok(None),
        (other, _) => Err(reply.unexpected(other)),
    };
    let answers = words.iter().map(answer).collect::<Result<_>>()?;
    Ok((answers, news(&mut reply, keys)?))
}

/// The headers of an instance in their stored form. `None` if they cannot be read.
fn headers_of(keys: &TaskKeys, json: &str) -> Option<Arc<Headers>> {
    // The error could quote a value.
    let read = serde_json::from_str(json).inspect_err(|_| {
        tracing::warn!(workflow = keys.task(), "the headers of an instance cannot be read; its jobs run without them");
    });
    read.ok().map(Arc::new)
}

/// The headers that a node has from its instance. Unreadable ones count as none.
pub(crate) async fn headers(conn: &mut impl Connection, keys: &TaskKeys, node: &NodeId) -> Result<Headers> {
    let json = values::value(conn, keys, Key::FlowHeaders, node.root()).await?;
    Ok(json.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default())
}

/// The end of a reply, see `add_news` of `lua/lib/flow_reply.lua`.
pub(super) fn news(reply: &mut Reply, keys: &TaskKeys) -> Result<Advanced> {
    Ok(Advanced { entries: counted(reply)?, sends: to_send(reply, keys)?, ..Advanced::default() })
}

/// A number, then as many words.
pub(super) fn counted(reply: &mut Reply) -> Result<Vec<String>> {
    let count: usize = reply.next()?;
    (0..count).map(|_| reply.text()).collect()
}
