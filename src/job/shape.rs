//! The shape of a graph: the part that all instances of the graph share.

use serde::{Deserialize, Serialize};

/// A graph without the inputs of its nodes: JSON in `shapes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<ShapeNode>,
    /// The node whose value is the output of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<u32>,
    /// What happens to the instance when a node fails.
    pub(crate) on_failure: String,
}

impl ShapeNode {
    /// The state of the node in `nodes` after this many of its inputs have completed.
    pub(crate) fn waits(&self, completed: usize) -> String {
        let count = self.inputs.len();
        let (kind, need) =
            if self.always { ('P', count) } else { ('p', self.at_least.map_or(count, |least| least as usize)) };
        // A node without inputs waits for nothing.
        let kind = if count == 0 { 'p' } else { kind };
        format!("{kind} {} {}", need.saturating_sub(completed), count - completed)
    }
}

impl Shape {
    /// The nodes that did not complete, and how each waits in a new run. `states` are those of the earlier run; completed nodes stay as
    /// they are.
    pub(crate) fn states_again(&self, states: &[String]) -> Vec<(u32, String)> {
        let is_completed = |node: u32| states.get(node as usize).is_some_and(|state| state == "c");
        let again = (0..).zip(&self.nodes).filter(|(node, _)| !is_completed(*node));
        let waits = |node: &ShapeNode| node.waits(node.inputs.iter().filter(|input| is_completed(**input)).count());
        again.map(|(index, node)| (index, waits(node))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShapeNode {
    pub(crate) name: String,
    /// Empty for a graph.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) task: String,
    /// The nodes that it waits for, in the order in which they were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<u32>,
    /// How many of them must complete; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<u32>,
    /// It runs when all its inputs have ended, completed or not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) always: bool,
    /// Its failure does not fail the instance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) optional: bool,
    /// It is a graph, which runs as an instance of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_graph: bool,
    /// Its payload is the value of its first input.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) takes_value: bool,
    /// JSON of the options of its dispatch; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) own: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_false(flag: &bool) -> bool {
    !flag
}
