//! Jobs: ids, states, outcomes, failures.

pub(crate) mod child_graph;
pub(crate) mod failure;
pub(crate) mod id;
pub(crate) mod instance;
pub(crate) mod node_id;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod shape;
pub(crate) mod snooze;
pub(crate) mod state;
pub(crate) mod subgraph_result;
pub(crate) mod tick;
