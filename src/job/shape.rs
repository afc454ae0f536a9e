//! The shape of a graph: what all instances that were started with it share.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A graph that a node runs as, with what all of its nodes begin with: as JSON in `input` or in `grow`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildGraph {
    pub(crate) shape: Shape,
    /// By the numbers of the nodes that have an input of their own.
    pub(crate) inputs: Vec<(u32, Box<RawValue>)>,
}

/// A graph without the inputs of its nodes, as JSON in `shapes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<ShapeNode>,
    /// The node whose value is that of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<u32>,
    /// What becomes of the instance when a node fails.
    pub(crate) on_failure: String,
}

impl ShapeNode {
    /// How the node waits when so many of its inputs have completed, as `nodes` has it.
    pub(crate) fn waits(&self, completed: usize) -> String {
        let count = self.inputs.len();
        let (kind, need) =
            if self.always { ('P', count) } else { ('p', self.at_least.map_or(count, |least| least as usize)) };
        // Of a node without inputs nothing is left.
        let kind = if count == 0 { 'p' } else { kind };
        format!("{kind} {} {}", need.saturating_sub(completed), count - completed)
    }
}

impl Shape {
    /// The nodes that did not complete, by these states, and how they wait in a new run, with what has completed as it is.
    pub(crate) fn states_again(&self, states: &[String]) -> Vec<(u32, String)> {
        let is_completed = |node: u32| states.get(node as usize).is_some_and(|state| state == "c");
        let again = (0..).zip(&self.nodes).filter(|(node, _)| !is_completed(*node));
        let waits = |node: &ShapeNode| node.waits(node.inputs.iter().filter(|input| is_completed(**input)).count());
        again.map(|(index, node)| (index, waits(node))).collect()
    }
}

/// A node of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShapeNode {
    pub(crate) name: String,
    /// Empty of a graph.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) task: String,
    /// The nodes that it waits for, in the order in which they were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<u32>,
    /// How many of them must complete; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<u32>,
    /// It runs when they have ended, whatever came of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) always: bool,
    /// Its failure does not fail the instance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) optional: bool,
    /// It is a graph, which runs as a child.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_graph: bool,
    /// Its payload is the value of its input.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) takes_value: bool,
    /// JSON of what its dispatch sets; empty for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) own: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes it so
fn is_false(flag: &bool) -> bool {
    !flag
}
