//! What the events of a workflow say, and how an entry of its stream is read.

use std::time::SystemTime;

use serde::Serialize;

use super::decode::{Decoded, groups, written_at};
use crate::job::instance::{NodeState, WorkflowState};
use crate::store::streams::Entry;
use crate::times::ms_since_1970;

/// One step of an instance of a workflow, from [`Workflow::events`](crate::Workflow::events).
///
/// ```no_run
/// # use heartline::{Workflow, WorkflowEvent};
/// # async fn run(nightly: Workflow<u64>) {
/// let mut events = nightly.events();
/// while let Ok(event) = events.recv().await {
///     match &event {
///         WorkflowEvent::Node { node, state, .. } => println!("{}: node {node} {state}", event.id()),
///         _ => println!("{}: {}", event.id(), event.name()),
///     }
/// }
/// # }
/// ```
///
/// When an event arrives, the state in Redis has already changed, and may have changed again since. What the job of a node does until it
/// ends, its task tells: [`TaskRef::events`](crate::TaskRef::events), under the id of the job. A graph that runs as a node is an instance of its own with the id
/// `<instance>/<node>.<run>`, and has its own events.
///
/// As JSON an event is an object with `event` (`ended`), and the time in ms since 1970.
///
/// | event | name | when |
/// |---|---|---|
/// | `Started` | `workflow:started` | the instance was written, or begins a new run |
/// | `Node` | `workflow:node` | one of its nodes ended, or was skipped |
/// | `Paused` | `workflow:paused` | none of its nodes opens any more: a person, or its policy, paused it |
/// | `Resumed` | `workflow:resumed` | a person let it go on |
/// | `Ended` | `workflow:ended` | it completed, failed or was cancelled |
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkflowEvent {
    /// The instance was written, or begins a new run.
    #[non_exhaustive]
    Started {
        /// The definition.
        workflow: String,
        /// The instance.
        id: String,
        /// Which run of it, from 1: [`retry_failed`](crate::WorkflowHandle::retry_failed) begins another.
        run: u64,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
    /// One of its nodes ended, or was skipped. The job of a node that ended so may have ended long before, and what waited for it is on its way.
    #[non_exhaustive]
    Node {
        /// The definition.
        workflow: String,
        /// The instance.
        id: String,
        /// Which run of it.
        run: u64,
        /// The number of the node, from 0, in the order in which the graph made them: that of [`WorkflowStatus::nodes`](crate::WorkflowStatus::nodes).
        node: u32,
        /// How it ended: completed, failed, cancelled or skipped.
        state: NodeState,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
    /// Nothing of it opens any more until somebody resumes it.
    #[non_exhaustive]
    Paused {
        /// The definition.
        workflow: String,
        /// The instance.
        id: String,
        /// Which run of it.
        run: u64,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
    /// A person let it go on.
    #[non_exhaustive]
    Resumed {
        /// The definition.
        workflow: String,
        /// The instance.
        id: String,
        /// Which run of it.
        run: u64,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
    /// It has ended.
    #[non_exhaustive]
    Ended {
        /// The definition.
        workflow: String,
        /// The instance.
        id: String,
        /// Which run of it.
        run: u64,
        /// How it ended: completed, failed or cancelled.
        state: WorkflowState,
        /// When it happened, to the millisecond and by the clock of the Redis server.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
    },
}

impl WorkflowEvent {
    /// The definition.
    #[must_use]
    pub fn workflow(&self) -> &str {
        match self {
            WorkflowEvent::Started { workflow, .. }
            | WorkflowEvent::Node { workflow, .. }
            | WorkflowEvent::Paused { workflow, .. }
            | WorkflowEvent::Resumed { workflow, .. }
            | WorkflowEvent::Ended { workflow, .. } => workflow,
        }
    }

    /// The instance.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            WorkflowEvent::Started { id, .. }
            | WorkflowEvent::Node { id, .. }
            | WorkflowEvent::Paused { id, .. }
            | WorkflowEvent::Resumed { id, .. }
            | WorkflowEvent::Ended { id, .. } => id,
        }
    }

    /// The name of the event: `workflow:ended`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            WorkflowEvent::Started { .. } => "workflow:started",
            WorkflowEvent::Node { .. } => "workflow:node",
            WorkflowEvent::Paused { .. } => "workflow:paused",
            WorkflowEvent::Resumed { .. } => "workflow:resumed",
            WorkflowEvent::Ended { .. } => "workflow:ended",
        }
    }

    /// When it happened, to the millisecond and by the clock of the Redis server.
    #[must_use]
    pub const fn at(&self) -> SystemTime {
        match self {
            WorkflowEvent::Started { at, .. }
            | WorkflowEvent::Node { at, .. }
            | WorkflowEvent::Paused { at, .. }
            | WorkflowEvent::Resumed { at, .. }
            | WorkflowEvent::Ended { at, .. } => *at,
        }
    }
}

/// Reads the events of an entry of the stream of a workflow.
///
/// # Errors
/// The name of the field that is no list of words as `docs/wire-format.md` has it.
pub(super) fn decode(workflow: &str, entry: &Entry) -> Result<Decoded<WorkflowEvent>, String> {
    let mut decoded = Decoded::default();
    let at = written_at(&entry.id);
    for (name, words) in &entry.fields {
        let workflow = || workflow.to_owned();
        let mut push = |event| {
            decoded.events.push(event);
            Some(())
        };
        let read = match name.as_str() {
            "total" => words.parse::<u64>().ok().map(drop),
            "worker" => Some(()),
            "started" => groups(words, |[mark]| {
                let (id, run) = run_of(mark)?;
                push(WorkflowEvent::Started { workflow: workflow(), id: id.to_owned(), run, at: at? })
            }),
            "node" => groups(words, |[letter, mark]| {
                let (named, run) = run_of(mark)?;
                let (id, node) = named.rsplit_once('/')?;
                let (id, node, state) = (id.to_owned(), node.parse().ok()?, NodeState::from_wire(letter));
                push(WorkflowEvent::Node { workflow: workflow(), id, run, node, state, at: at? })
            }),
            "paused" => groups(words, |[mark]| {
                let (id, run) = run_of(mark)?;
                push(WorkflowEvent::Paused { workflow: workflow(), id: id.to_owned(), run, at: at? })
            }),
            "resumed" => groups(words, |[mark]| {
                let (id, run) = run_of(mark)?;
                push(WorkflowEvent::Resumed { workflow: workflow(), id: id.to_owned(), run, at: at? })
            }),
            "ended" => groups(words, |[state, mark]| {
                let ((id, run), state) = (run_of(mark)?, state.parse().ok()?);
                push(WorkflowEvent::Ended { workflow: workflow(), id: id.to_owned(), run, state, at: at? })
            }),
            _ => {
                decoded.unknown_fields = true;
                Some(())
            }
        };
        read.ok_or_else(|| name.clone())?;
    }
    Ok(decoded)
}

/// What is in front of the number of a run, and that.
fn run_of(mark: &str) -> Option<(&str, u64)> {
    let (named, run) = mark.rsplit_once('/')?;
    Some((named, run.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: "1700000000123-4".into(), fields }
    }

    #[test]
    fn an_entry_reads_in_the_order_of_its_fields() {
        let entry = entry(&[
            ("total", "7"),
            ("worker", ""),
            ("started", "a/1 a/3.1/1"),
            ("node", "c a/0/1 s a/3.1/12/1"),
            ("paused", "b/2"),
            ("resumed", "b/2"),
            ("ended", "cancelled c/1"),
        ]);
        let decoded = decode("nightly", &entry).unwrap();
        assert!(!decoded.unknown_fields);
        let json: Vec<String> = decoded.events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        let head = |event: &str, id: &str| format!(r#"{{"event":"{event}","workflow":"nightly","id":"{id}""#);
        let at = r#""at_ms":1700000000123}"#;
        assert_eq!(
            json,
            [
                format!(r#"{},"run":1,{at}"#, head("started", "a")),
                format!(r#"{},"run":1,{at}"#, head("started", "a/3.1")),
                format!(r#"{},"run":1,"node":0,"state":"completed",{at}"#, head("node", "a")),
                format!(r#"{},"run":1,"node":12,"state":"skipped",{at}"#, head("node", "a/3.1")),
                format!(r#"{},"run":2,{at}"#, head("paused", "b")),
                format!(r#"{},"run":2,{at}"#, head("resumed", "b")),
                format!(r#"{},"run":1,"state":"cancelled",{at}"#, head("ended", "c")),
            ]
        );
    }

    #[test]
    fn what_is_no_list_of_words_is_named_and_what_is_new_is_skipped() {
        for (name, value) in
            [("node", "c a"), ("node", "a/0/1"), ("ended", "gone a/1"), ("started", "a"), ("total", "x")]
        {
            assert_eq!(decode("t", &entry(&[(name, value)])), Err(name.to_owned()));
        }
        let later = decode("t", &entry(&[("moved", "a/1"), ("started", "a/1")])).unwrap();
        assert_eq!((later.events.len(), later.unknown_fields), (1, true));
    }
}
