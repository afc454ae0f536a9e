//! `lua/flow_start.lua`: writes an instance of a workflow.

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::scripts::{self, Reply, Text};
use crate::error::Error;
use crate::job::node_id::NodeId;

/// An instance that is to start.
#[derive(Debug)]
pub(crate) struct NewInstance<'a> {
    pub(crate) id: &'a str,
    pub(crate) shape: &'a ShapeRecords,
    /// By the numbers of the nodes that have an input of their own.
    pub(crate) inputs: &'a [(u32, Vec<u8>)],
}

/// A graph as the scripts and people read it, the same for all instances that were started with such a graph.
#[derive(Debug, Default)]
pub(crate) struct ShapeRecords {
    pub(crate) digest: String,
    /// How each node begins.
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
    /// There is an instance of this id.
    Existed,
    /// The records of the shape are to come along.
    ShapeUnknown,
}

/// A node that is open and is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct ToSend {
    pub(crate) id: NodeId,
    pub(crate) task: String,
    /// JSON of what its dispatch sets; empty for nothing.
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

/// Writes an instance, with its shape or, where that is known, without. It is safe to repeat.
pub(crate) async fn start(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &NewInstance<'_>,
    with_shape: bool,
) -> Result<Started, Error> {
    let NewInstance { id, shape, inputs } = instance;
    let mut call = scripts::FLOW_START.on(keys);
    call.arg(*id).arg(&shape.digest).arg(shape.states.len());
    call.arg(if with_shape { shape.records.len() } else { 0 }).arg(shape.tasks.join(" "));
    for state in &shape.states {
        call.arg(state);
    }
    for (field, record) in shape.records.iter().filter(|_| with_shape) {
        call.arg(field).arg(record.as_slice());
    }
    for (node, payload) in *inputs {
        call.arg(node).arg(payload.as_slice());
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "started" => Ok(Started::Now(to_send(&mut reply, keys)?)),
        "existed" => Ok(Started::Existed),
        "shape" => Ok(Started::ShapeUnknown),
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
        let (node, run, task, own, at) = (text(next()), text(next()), text(next()), text(next()), text(next()));
        let payload = next();
        let payload = match at.as_str() {
            "value" => NodePayload::Apart(Key::Value, text(payload)),
            "input" => NodePayload::Apart(Key::Input, text(payload)),
            _ => NodePayload::Here(redis::from_redis_value(payload).unwrap_or_default()),
        };
        let (definition, instance) = (keys.task().to_owned(), text(instance));
        if let (Ok(node), Ok(run)) = (node.parse(), run.parse()) {
            found.push(ToSend { id: NodeId { definition, instance, node, run }, task, own, payload });
        }
    }
    Ok(found)
}
