//! The nodes of an instance as they were read, and why pending ones wait.

use std::collections::HashSet;

use super::waits::{COMPARED, Worked};
use super::workflow_report::NodeReport;
use crate::backend::keys::TaskKeys;
use crate::backend::workflow::instances::FlowState;
use crate::job::failure::{StoredError, codes};
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::node_id::NodeId;
use crate::job::shape::{Shape, ShapeNode};
use crate::job::state::JobState;

/// The reason of an instance whose state the server lost.
pub(super) const NOWHERE: &str =
    "the server has lost its state, so it cannot continue: `heartline flows recover` pauses it";

/// How many of the nodes that a node waits for are named.
const NAMED: usize = 10;

/// An instance as it was read.
pub(super) struct View<'a> {
    pub(super) keys: &'a TaskKeys,
    pub(super) id: &'a str,
    pub(super) state: &'a FlowState,
    pub(super) shape: &'a Shape,
    pub(super) states: &'a [String],
    pub(super) has_live_workers: bool,
}

impl View<'_> {
    pub(super) fn node_id(&self, node: u32) -> NodeId {
        let (definition, instance) = (self.keys.task().to_owned(), self.id.to_owned());
        NodeId { definition, instance, node, run: self.state.run }
    }

    pub(super) fn node(&self, at: usize) -> NodeReport {
        let (node, said, number) = (&self.shape.nodes[at], &*self.states[at], at as u32);
        let (state, id) = (NodeState::from_wire(said), self.node_id(number));
        // After a retry, it is unknown in which run a node completed.
        let is_older = state == NodeState::Completed && id.run > 1;
        let was_opened = !matches!(state, NodeState::Pending | NodeState::Skipped) && !is_older;
        let is_graph = node.is_graph || said.starts_with('g');
        let waits = (state == NodeState::Pending).then(|| self.waits(node, said));
        let (needs, waits_for, why) = match waits {
            Some((needs, waits_for, why)) => (Some(needs), waits_for, Some(why)),
            None => (None, Vec::new(), None),
        };
        NodeReport {
            number,
            name: node.name.clone(),
            task: (!is_graph).then(|| node.task.clone()),
            state,
            after: node.inputs.clone(),
            needs,
            waits_for,
            job: (was_opened && !node.is_graph).then(|| id.job_id()),
            // A job that returned a graph has completed before its node ends.
            job_state: (!node.is_graph && said.starts_with('g')).then_some(JobState::Completed),
            child: (was_opened && is_graph).then(|| id.child()),
            to_send_since: None,
            is_to_be_told: false,
            why,
        }
    }

    /// For a pending node: how many inputs must still complete, the first that have not ended, and why it waits.
    fn waits(&self, node: &ShapeNode, said: &str) -> (u32, Vec<String>, String) {
        let needs = said.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let has_ended = |input: &u32| {
            let state = self.states.get(*input as usize).map_or(NodeState::Pending, |said| NodeState::from_wire(said));
            !matches!(state, NodeState::Pending | NodeState::Open)
        };
        let mut seen = HashSet::new();
        let left: Vec<u32> =
            node.inputs.iter().copied().filter(|input| !has_ended(input) && seen.insert(*input)).collect();
        let name =
            |input: &u32| self.shape.nodes.get(*input as usize).map_or_else(String::new, |node| node.name.clone());
        let named: Vec<String> = left.iter().take(NAMED).map(name).collect();
        let place = self.state.place;
        let why = if self.state.is_unplaced {
            NOWHERE.to_owned()
        } else if place.is_ended() {
            "the instance ended before it could run".to_owned()
        } else if self.state.is_stopping {
            "the instance is stopping, so it will not run".to_owned()
        } else if !said.starts_with(['p', 'P']) {
            let soon = Worked::soon(self.has_live_workers, COMPARED);
            let is_still = place == WorkflowState::Paused && self.state.open == 0;
            let when = if is_still { "when the instance is resumed" } else { &*soon };
            format!("its state cannot be read, so it ends as corrupt: {when}")
        } else if needs == 0 && place == WorkflowState::Paused {
            "it is ready, but the instance is paused".to_owned()
        } else if needs == 0 {
            format!("it is ready to start: {}", Worked::soon(self.has_live_workers, "15 s"))
        } else if left.is_empty() {
            let soon = Worked::soon(self.has_live_workers, "15 s");
            format!("the nodes it waited for have ended, but this is not recorded yet: {soon}")
        } else {
            let more = left.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let some = (needs as usize) < left.len();
            let some = if some { format!("; {needs} of them must complete") } else { String::new() };
            format!("it waits for {}{more}{some}", named.join(", "))
        };
        (needs, named, why)
    }

    /// Whether a cancel, its deadline or damaged data ended the instance, and not a node.
    pub(super) fn was_stopped(&self) -> bool {
        match self.state.place {
            WorkflowState::Cancelled => true,
            WorkflowState::Failed => !self.state.answer.is_empty(),
            _ => false,
        }
    }

    /// The first node that failed, which [`said`](View::said) is about.
    pub(super) fn failed_node(&self) -> Option<NodeReport> {
        let (node, said) = self.state.broken_by.as_ref().filter(|(_, said)| !said.is_empty())?;
        // A node that could not be read may have no job, or one that has not failed.
        let is_corrupt = self.state.is_unplaced || StoredError::from_json(said).code == codes::CORRUPT;
        let at = usize::try_from(*node).ok().filter(|at| !is_corrupt && *at < self.shape.nodes.len())?;
        Some(self.node(at)).filter(|node| node.state == NodeState::Failed)
    }

    /// The code and message of what ended or paused the instance.
    pub(super) fn said(&self) -> (Option<String>, Option<String>) {
        if self.state.is_unplaced {
            return (Some(codes::CORRUPT.to_owned()), Some(NOWHERE.to_owned()));
        }
        let answer = String::from_utf8_lossy(&self.state.answer);
        let name = |node: u32| self.shape.nodes.get(node as usize).map(|node| &*node.name);
        let broken = self.state.broken_by.as_ref().map(|(node, said)| (name(*node), &**said));
        end_of(self.state.place, &answer, broken).map(|error| (error.code, error.message)).unzip()
    }
}

/// What ended or paused an instance in this place. `why` is the stored reason of its end. `broken` is the first node that broke it: its name
/// if known, and its failure.
pub(super) fn end_of(place: WorkflowState, why: &str, broken: Option<(Option<&str>, &str)>) -> Option<StoredError> {
    let stopped = match place {
        WorkflowState::Completed => return None,
        WorkflowState::Cancelled => Some(StoredError { code: codes::CANCELLED.to_owned(), message: why.to_owned() }),
        WorkflowState::Failed if !why.is_empty() => Some(StoredError::from_json(why)),
        _ => None,
    };
    match (stopped, broken.filter(|(_, said)| !said.is_empty())) {
        (Some(stopped), Some((Some(node), said))) => Some(stopped.after(node, &StoredError::from_json(said))),
        (Some(stopped), _) => Some(stopped),
        (None, Some((_, said))) => Some(StoredError::from_json(said)),
        (None, None) if broken.is_some() => {
            let (code, message) = (codes::SKIPPED.to_owned(), "its output node was skipped".to_owned());
            Some(StoredError { code, message })
        }
        (None, None) => (place == WorkflowState::Failed).then(|| StoredError::from_json("")),
    }
}
