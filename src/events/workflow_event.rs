//! The events of workflows, and how an entry of their streams is decoded.

use std::time::SystemTime;

use serde::Serialize;

use super::decode::{Decoded, groups, written_at};
use crate::backend::streams::Entry;
use crate::job::instance::{NodeState, WorkflowState};
use crate::unix_time::ms_since_1970;

/// An event of an instance of a workflow, from [`Workflow::events`](crate::Workflow::events).
///
/// ```no_run
/// # use heartline::{Workflow, WorkflowStep};
/// # async fn run(nightly: Workflow<u64>) {
/// let mut events = nightly.events();
/// while let Ok(event) = events.recv().await {
///     match event.step {
///         WorkflowStep::Node { node, state, .. } => println!("{}: node {node} {state}", event.id),
///         _ => println!("{}: {}", event.id, event.name()),
///     }
/// }
/// # }
/// ```
///
/// When an event arrives, the state in Redis has already changed, and may have changed again since. What a node's
/// job does until it ends is reported by the events of its task, under the id of the job:
/// [`TaskRef::events`](crate::TaskRef::events).
///
/// A subgraph is an instance with the id `<instance>/<node>.<run>` and with its own events. The events of one call come
/// in the order of the variants of [`WorkflowStep`]; nodes come in the order in which they ended.
///
/// As JSON, an event is an object whose field `event` has its name (`ended`), with the time in ms since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowEvent {
    /// The definition.
    pub workflow: String,
    /// The instance.
    pub id: String,
    /// The run of the instance, from 1: [`retry_failed`](crate::WorkflowHandle::retry_failed) begins another.
    pub run: u64,
    /// Who paused or resumed it by hand, if a name was given ([`Inspector::by`](crate::Inspector::by)). A resume may
    /// also have ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub step: WorkflowStep,
    /// When it happened, to the millisecond and by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

/// What happened to an instance of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkflowStep {
    /// It was written, or begins a new run.
    Started,
    /// One of its nodes ended, or was skipped. Nodes that waited for it are about to open.
    #[non_exhaustive]
    Node {
        /// The number of the node, from 0, in the order in which the graph made them: that of
        /// [`WorkflowStatus::nodes`](crate::WorkflowStatus::nodes).
        node: u32,
        /// How it ended: completed, failed, cancelled or skipped.
        state: NodeState,
    },
    /// A person or its policy paused it: no more of its nodes open until it is resumed.
    Paused,
    /// A person resumed it.
    Resumed,
    /// It has ended.
    #[non_exhaustive]
    Ended {
        /// How it ended: completed, failed or cancelled.
        state: WorkflowState,
    },
}

impl WorkflowEvent {
    /// The name of the event: `workflow:ended`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.step {
            WorkflowStep::Started => "workflow:started",
            WorkflowStep::Node { .. } => "workflow:node",
            WorkflowStep::Paused => "workflow:paused",
            WorkflowStep::Resumed => "workflow:resumed",
            WorkflowStep::Ended { .. } => "workflow:ended",
        }
    }
}

/// Decodes the events of an entry of a workflow's stream.
///
/// # Errors
/// The name of a field whose words do not match `docs/wire-format.md`.
pub(super) fn decode(workflow: &str, entry: &Entry) -> Result<Decoded<WorkflowEvent>, String> {
    let mut decoded = Decoded::default();
    let at = written_at(&entry.id);
    let by = entry.fields.iter().find(|(name, _)| name == "by").map(|(_, by)| by.clone());
    for (name, words) in &entry.fields {
        // The events of an instance in a run.
        let mut push = |id: &str, run, step| {
            let (workflow, id, by) = (workflow.to_owned(), id.to_owned(), by.clone());
            decoded.events.push(WorkflowEvent { workflow, id, run, by, step, at: at? });
            Some(())
        };
        let mut plain = |step| groups(words, |[mark]| run_of(mark).and_then(|(id, run)| push(id, run, step)));
        let read = match name.as_str() {
            "total" => words.parse::<u64>().ok().map(drop),
            "worker" | "by" => Some(()),
            "started" => plain(WorkflowStep::Started),
            "paused" => plain(WorkflowStep::Paused),
            "resumed" => plain(WorkflowStep::Resumed),
            "node" => groups(words, |[letter, mark]| {
                let (named, run) = run_of(mark)?;
                let (id, node) = named.rsplit_once('/')?;
                push(id, run, WorkflowStep::Node { node: node.parse().ok()?, state: NodeState::from_wire(letter) })
            }),
            "ended" => groups(words, |[state, mark]| {
                let (id, run) = run_of(mark)?;
                push(id, run, WorkflowStep::Ended { state: state.parse().ok()? })
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

/// Splits a mark into what comes before the run number, and that number.
fn run_of(mark: &str) -> Option<(&str, u64)> {
    let (named, run) = mark.rsplit_once('/')?;
    Some((named, run.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: "1700000000123-4".into(), fields }
    }

    #[test]
    fn an_entry_has_its_fields_in_order() {
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
        let event = |id: &str, run: u64, step: &str| {
            format!(r#"{{"workflow":"nightly","id":"{id}","run":{run},"event":{step},"at_ms":1700000000123}}"#)
        };
        assert_eq!(
            json,
            [
                event("a", 1, r#""started""#),
                event("a/3.1", 1, r#""started""#),
                event("a", 1, r#""node","node":0,"state":"completed""#),
                event("a/3.1", 1, r#""node","node":12,"state":"skipped""#),
                event("b", 2, r#""paused""#),
                event("b", 2, r#""resumed""#),
                event("c", 1, r#""ended","state":"cancelled""#),
            ]
        );
    }

    #[test]
    fn a_malformed_list_is_named_and_unknown_fields_are_skipped() {
        for (name, value) in
            [("node", "c a"), ("node", "a/0/1"), ("ended", "gone a/1"), ("started", "a"), ("total", "x")]
        {
            assert_eq!(decode("t", &entry(&[(name, value)])), Err(name.to_owned()));
        }
        let later = decode("t", &entry(&[("moved", "a/1"), ("started", "a/1")])).unwrap();
        assert_eq!((later.events.len(), later.unknown_fields), (1, true));
    }

    #[test]
    fn no_entry_makes_the_decoder_panic() {
        let names = "total|worker|by|started|paused|resumed|node|ended|[a-z]{0,3}";
        let fields = prop::collection::vec((names, "([a-z] )?[a-z0-9./ -]{0,20}|\\PC{0,8}"), 0..6);
        proptest!(|(id in "[0-9-]{0,30}|\\PC{0,20}", fields in fields)| {
            let _ = decode("nightly", &Entry { id, fields });
        });
    }
}
