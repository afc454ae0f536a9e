//! Workflows: graphs of jobs that go on whoever dies.
//!
//! | file | what is in it |
//! |---|---|
//! | `options.rs` | what becomes of an instance when a node fails |
//! | `graph.rs` | a graph as a plain value: nodes, what each waits for, and its faults |
//! | `shape.rs` | a graph → the records that scripts read, and how each node begins |
//! | `workflow.rs` | a definition, and the start of an instance |
//! | `starter.rs` | an instance is written, in one call or in parts |
//! | `grow.rs` | a node goes on as a graph that its handler made |
//! | `mover/` | what moves instances: ends are told, opened nodes are sent, open ones cancelled; whoever does it, and however often |
//! | `handle.rs` | an instance from the side of whoever started it |

pub(crate) mod graph;
mod grow;
pub(crate) mod handle;
pub(crate) mod mover;
pub(crate) mod options;
pub(crate) mod shape;
pub(crate) mod shared;
mod starter;
pub(crate) mod workflow;
