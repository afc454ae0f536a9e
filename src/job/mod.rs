//! Jobs: ids, states, outcomes, failures.

pub(crate) mod deferred;
pub(crate) mod failure;
pub(crate) mod grown;
pub(crate) mod id;
pub(crate) mod instance;
pub(crate) mod node_id;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod shape;
pub(crate) mod state;
