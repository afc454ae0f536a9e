//! `lua/flow_start.lua`: writes an instance of a workflow.

use std::time::Duration;

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{Reply, Text};
use super::scripts;
use crate::error::Error;
use crate::job::node_id::NodeId;
use crate::limits::stored_number;
use crate::times::to_ms;

/// An instance that is to start.
#[derive(Debug)]
pub(crate) struct NewInstance<'a> {
    pub(crate) id: &'a str,
    pub(crate) shape: &'a ShapeRecords,
    /// By the numbers of the nodes that have an input of their own.
    pub(crate) inputs: &'a [(u32, Vec<u8>)],
    /// Its jobs do not run before; zero for none.
    pub(crate) delay: Duration,
    /// It is stopped after so long.
    pub(crate) deadline: Option<Duration>,
}

impl NewInstance<'_> {
    /// How much there is to write.
    pub(crate) fn bytes(&self) -> usize {
        let records: usize = self.shape.records.iter().map(|(_, record)| record.len()).sum();
        records + self.inputs.iter().map(|(_, payload)| payload.len()).sum::<usize>()
    }
}

/// A graph as the scripts and people read it, the same for all instances that were started with such a graph.
#[derive(Debug, Default)]
pub(crate) struct ShapeRecords {
    pub(crate) digest: String,
    /// How each node begins: those that wait for nothing are open.
    pub(crate) states: Vec<String>,
    /// The tasks of its nodes, each once.
    pub(crate) tasks: Vec<String>,
    /// Fields and their records.
    pub(crate) records: Vec<(String, Vec<u8>)>,
}

/// What became of a start.
#[derive(Debug)]
pub(crate) enum Started {
    /// These nodes are to be sent.
    Now(Vec<ToSend>),
    /// It was written in parts: what is ready of it is to be opened.
    InParts,
    /// There is an instance of this id.
    Existed,
    /// Nothing waits for this child any more.
    Stale,
    /// The records of the shape are to come along.
    ShapeUnknown,
    /// Some of its parts are not there.
    PartsUnknown,
    /// Somebody else has begun to write it in parts.
    Left,
}

/// What the scripts call the task of a node that is a graph.
pub(crate) const GRAPH: &str = "@";

/// A node that is open and is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct ToSend {
    pub(crate) id: NodeId,
    /// Or [`GRAPH`].
    pub(crate) task: String,
    /// In how many ms its job may run, from when it was opened on.
    pub(crate) wait_ms: u64,
    /// JSON of what its dispatch sets; empty for nothing. Of a graph that its job returned the policy of its instance.
    pub(crate) own: String,
    pub(crate) payload: NodePayload,
}

/// The payload of a node's job.
#[derive(Clone, Debug)]
pub(crate) enum NodePayload {
    Here(Vec<u8>),
    /// In a column of the workflow, under this field: it is too large to come with others.
    Apart(Key, String),
}

/// What comes with the start of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comes<'a> {
    /// All of it but the records of its shape.
    Instance,
    /// All of it.
    InstanceAndShape,
    /// Nothing, since these parts are written; with the last record of the shape where that is new.
    Parts { nonce: &'a str, parts: u32, is_new: bool },
}

/// Writes an instance. It is safe to repeat.
pub(crate) async fn start(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &NewInstance<'_>,
    comes: Comes<'_>,
) -> Result<Started, Error> {
    let NewInstance { id, shape, inputs, delay, deadline } = instance;
    let staged = match comes {
        Comes::Parts { nonce, parts, .. } => format!("{nonce} {parts}"),
        _ => "-".to_owned(),
    };
    let records = match comes {
        Comes::InstanceAndShape => &*shape.records,
        // The last one says that the others are there.
        Comes::Parts { is_new: true, .. } => &shape.records[shape.records.len().saturating_sub(1)..],
        _ => &[],
    };
    let mut call = scripts::FLOW_START.on(keys);
    call.arg(*id).arg(&shape.digest).arg(shape.states.len()).arg(&staged).arg(records.len());
    call.arg(to_ms(*delay)).arg(deadline.map_or(0, to_ms)).arg(shape.tasks.join(" "));
    let is_whole = staged == "-";
    for state in shape.states.iter().filter(|_| is_whole) {
        call.arg(state);
    }
    for (field, record) in records {
        call.arg(field).arg(record.as_slice());
    }
    for (node, payload) in inputs.iter().filter(|_| is_whole) {
        call.arg(node).arg(payload.as_slice());
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "started" if is_whole => Ok(Started::Now(to_send(&mut reply, keys)?)),
        "started" => Ok(Started::InParts),
        "existed" => Ok(Started::Existed),
        "stale" => Ok(Started::Stale),
        "shape" => Ok(Started::ShapeUnknown),
        "parts" => Ok(Started::PartsUnknown),
        "left" => Ok(Started::Left),
        other => Err(reply.unexpected(other)),
    }
}

/// The nodes at the end of a reply, see `lua/lib/flow.lua`.
pub(super) fn to_send(reply: &mut Reply, keys: &TaskKeys) -> Result<Vec<ToSend>, Error> {
    let words: Vec<redis::Value> = reply.rest()?;
    let mut words = words.into_iter();
    let mut found = Vec::new();
    let text = |value| redis::from_redis_value::<Text>(value).map_or_else(|_| String::new(), |Text(text)| text);
    while let Some(instance) = words.next() {
        let mut next = || words.next().unwrap_or(redis::Value::Nil);
        let (node, run, task, own) = (text(next()), text(next()), text(next()), text(next()));
        let (wait, at, payload) = (text(next()), text(next()), next());
        let payload = match at.as_str() {
            "grow" => NodePayload::Apart(Key::Grow, text(payload)),
            "value" => NodePayload::Apart(Key::Value, text(payload)),
            "input" => NodePayload::Apart(Key::Input, text(payload)),
            _ => NodePayload::Here(redis::from_redis_value(payload).unwrap_or_default()),
        };
        let (definition, instance) = (keys.task().to_owned(), text(instance));
        if let (Ok(node), Ok(run)) = (node.parse(), run.parse()) {
            let wait_ms = stored_number(&wait).unwrap_or(0);
            found.push(ToSend { id: NodeId { definition, instance, node, run }, task, wait_ms, own, payload });
        }
    }
    Ok(found)
}
