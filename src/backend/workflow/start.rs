//! Writes instances of workflows: in one call (`lua/flow_start.lua`), or in parts (`lua/flow_stage.lua`, `lua/flow_unstage.lua`).

use std::time::Duration;

use crate::backend::connection::Connection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::reply::{Reply, Text};
use crate::backend::scripts;
use crate::backend::values::ValuePlace;
use crate::error::Result;
use crate::job::node_id::NodeId;
use crate::limits::{LARGE, stored_number};
use crate::unix_time::to_ms;

/// If no new part was written for this long, another caller may discard a start that was written in parts.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the parts of an unfinished start are kept.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// What the scripts call the task of a node that is a graph.
pub(crate) const GRAPH: &str = "@";

#[derive(Debug)]
pub(crate) struct NewInstance<'a> {
    pub(crate) id: &'a str,
    pub(crate) shape: &'a ShapeRecords,
    /// The inputs of the nodes that have an input of their own, by node number.
    pub(crate) inputs: &'a [(u32, Vec<u8>)],
    /// How long its jobs wait before they may run; zero for no wait.
    pub(crate) delay: Duration,
    /// The time after which it is stopped.
    pub(crate) deadline: Option<Duration>,
    /// JSON of its headers; empty for none, and for a child.
    pub(crate) headers: &'a str,
}

impl NewInstance<'_> {
    /// The number of bytes to write.
    pub(crate) fn bytes(&self) -> usize {
        let records: usize = self.shape.records.iter().map(|(_, record)| record.len()).sum();
        records + self.inputs.iter().map(|(_, payload)| payload.len()).sum::<usize>() + self.headers.len()
    }
}

/// A graph as scripts and people read it. Instances with the same graph share it.
#[derive(Debug, Default)]
pub(crate) struct ShapeRecords {
    pub(crate) digest: String,
    /// The first state of each node. Nodes that wait for nothing are open.
    pub(crate) states: Vec<String>,
    /// The tasks of its nodes, each once.
    pub(crate) tasks: Vec<String>,
    /// Fields and their records.
    pub(crate) records: Vec<(String, Vec<u8>)>,
}

/// The answer to a start.
#[derive(Debug)]
pub(crate) enum Started {
    /// These nodes must be sent.
    Now(Vec<ToSend>),
    /// It was written in parts; its ready nodes must be opened.
    InParts,
    /// The id is in use.
    Existed,
    /// No node waits for this child any more.
    Stale,
    /// The call must contain the records of the shape.
    ShapeUnknown,
    /// Some of its parts are missing.
    PartsUnknown,
    /// Another caller has begun to write it in parts.
    Left,
}

/// An open node whose job must be dispatched.
#[derive(Clone, Debug)]
pub(crate) struct ToSend {
    pub(crate) id: NodeId,
    /// The task, or [`GRAPH`].
    pub(crate) task: String,
    /// How long after the node opened its job may run, ms.
    pub(crate) wait_ms: u64,
    /// JSON of its dispatch options; empty for none. For a graph that its job returned: the failure policy of its
    /// instance.
    pub(crate) own: String,
    /// Empty until it is read from `place`.
    pub(crate) payload: Vec<u8>,
    /// Where to read the payload, if it did not come with others.
    pub(crate) place: Option<ValuePlace>,
}

impl ToSend {
    /// Records that the payload was read.
    pub(crate) fn is_read(&mut self, payload: Option<Vec<u8>>) {
        (self.payload, self.place) = (payload.unwrap_or_else(|| b"null".to_vec()), None);
    }
}

/// What the call that starts an instance contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartContent<'a> {
    /// Everything except the records of its shape.
    Instance,
    /// Everything, with the records of its shape.
    InstanceAndShape,
    /// Nothing, since these parts are written; if the shape is new, its last record.
    Parts { nonce: &'a str, parts: u32, is_new: bool },
}

/// Writes an instance. Safe to repeat.
pub(crate) async fn start(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &NewInstance<'_>,
    content: StartContent<'_>,
) -> Result<Started> {
    let NewInstance { id, shape, inputs, delay, deadline, headers } = instance;
    let staged = match content {
        StartContent::Parts { nonce, parts, .. } => format!("{nonce} {parts}"),
        _ => "-".to_owned(),
    };
    let records = match content {
        StartContent::InstanceAndShape => &*shape.records,
        // The last record marks the shape as complete.
        StartContent::Parts { is_new: true, .. } => &shape.records[shape.records.len().saturating_sub(1)..],
        _ => &[],
    };
    let mut call = scripts::FLOW_START.on(keys);
    call.arg(*id).arg(&shape.digest).arg(shape.states.len()).arg(&staged).arg(records.len());
    call.arg(to_ms(*delay)).arg(deadline.map_or(0, to_ms)).arg(shape.tasks.join(" ")).arg(*headers);
    let is_whole = staged == "-";
    call.args(shape.states.iter().filter(|_| is_whole)).args(records).args(inputs.iter().filter(|_| is_whole));
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "started" if is_whole => {
            let mut sends = to_send(&mut reply, keys)?;
            for send in sends.iter_mut().filter(|send| send.place.as_ref().is_some_and(|at| at.column == Key::Input)) {
                // The caller has its payload.
                if let Some((_, payload)) = inputs.iter().find(|(node, _)| *node == send.id.node) {
                    send.is_read(Some(payload.clone()));
                }
            }
            Ok(Started::Now(sends))
        }
        "started" => Ok(Started::InParts),
        "existed" => Ok(Started::Existed),
        "stale" => Ok(Started::Stale),
        "shape" => Ok(Started::ShapeUnknown),
        "parts" => Ok(Started::PartsUnknown),
        "left" => Ok(Started::Left),
        other => Err(reply.unexpected(other)),
    }
}

/// The nodes at the end of a reply, see `lua/lib/flow_reply.lua`.
pub(super) fn to_send(reply: &mut Reply, keys: &TaskKeys) -> Result<Vec<ToSend>> {
    let words: Vec<redis::Value> = reply.rest()?;
    let mut words = words.into_iter();
    let mut found = Vec::new();
    let text = |value| redis::from_redis_value::<Text>(value).map_or_else(|_| String::new(), |Text(text)| text);
    while let Some(instance) = words.next() {
        let mut next = || words.next().unwrap_or(redis::Value::Nil);
        let (node, run, task, own) = (text(next()), text(next()), text(next()), text(next()));
        let (wait, at, payload) = (text(next()), text(next()), next());
        let column = [Key::Input, Key::Value, Key::Grow].into_iter().find(|key| key.suffix() == at);
        let (payload, place) = match column {
            Some(column) => (Vec::new(), Some(place_of(column, &text(payload)))),
            None => (redis::from_redis_value(payload).unwrap_or_default(), None),
        };
        let (definition, instance) = (keys.task().to_owned(), text(instance));
        if let (Ok(node), Ok(run)) = (node.parse(), run.parse()) {
            let wait_ms = stored_number(&wait).unwrap_or(0);
            let id = NodeId { definition, instance, node, run };
            found.push(ToSend { id, task, wait_ms, own, payload, place });
        }
    }
    Ok(found)
}

/// A field and its size.
fn place_of(column: Key, words: &str) -> ValuePlace {
    let (field, bytes) = words.rsplit_once(' ').unwrap_or((words, ""));
    ValuePlace { column, field: field.to_owned(), bytes: bytes.parse().unwrap_or(LARGE) }
}

/// A part of an instance: the node numbers of its states, of its records and of its inputs.
#[derive(Debug, Default)]
pub(crate) struct StagedPart {
    pub(crate) states: Vec<u32>,
    pub(crate) records: Vec<usize>,
    pub(crate) inputs: Vec<usize>,
}

/// The answer to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    Written {
        shape_is_known: bool,
    },
    /// The id is in use.
    Existed,
    /// Another caller is starting an instance with this id.
    Other,
    /// Another caller has abandoned a start. Its parts must be removed.
    Left,
    /// Some of the parts before it are missing.
    PartsUnknown,
}

/// Writes a part of an instance that is too large for one call. Safe to repeat.
pub(crate) async fn stage(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &NewInstance<'_>,
    (nonce, number): (&str, u32),
    part: &StagedPart,
) -> Result<Staged> {
    let NewInstance { id, shape, inputs, .. } = instance;
    let mut call = scripts::FLOW_STAGE.on(keys);
    call.arg(*id).arg(nonce).arg(number).arg(&shape.digest).arg(shape.states.len());
    call.arg(part.states.len()).arg(part.records.len()).arg(to_ms(PATIENCE));
    for index in &part.states {
        let state = &*shape.states[*index as usize];
        // Nodes open when all parts are written.
        call.arg(index).arg(if matches!(state, "o" | "g") { "p 0 0" } else { state });
    }
    call.args(part.records.iter().map(|index| &shape.records[*index]));
    call.args(part.inputs.iter().map(|index| &inputs[*index]));
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "staged" => Ok(Staged::Written { shape_is_known: reply.next::<u8>()? > 0 }),
        "existed" => Ok(Staged::Existed),
        "other" => Ok(Staged::Other),
        "left" => Ok(Staged::Left),
        "parts" => Ok(Staged::PartsUnknown),
        other => Err(reply.unexpected(other)),
    }
}

/// Removes parts of unfinished starts: those of `instance` if they got no new part for some seconds, else some that are
/// an hour old. Returns whether more may follow at once.
pub(crate) async fn unstage(conn: &mut impl Connection, keys: &TaskKeys, instance: Option<&str>) -> Result<bool> {
    let mut reply = scripts::FLOW_UNSTAGE
        .on(keys)
        .arg(to_ms(if instance.is_some() { PATIENCE } else { GIVEN_UP }))
        .arg(instance.unwrap_or_default())
        .answer(conn)
        .await?;
    let (_, more): (u64, u8) = (reply.next()?, reply.next()?);
    Ok(more > 0)
}
