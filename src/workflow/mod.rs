//! Workflows: graphs of jobs that survive the death of any worker.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | what happens to an instance when a node fails |
//! | `graph.rs` | a graph as a plain value: nodes, what each waits for, and its faults |
//! | `shape.rs` | a graph → the records that scripts read, and how each node begins |
//! | `workflow.rs` | a definition, and the start of an instance |
//! | `starter.rs` | writes an instance, in one call or in parts |
//! | `grow.rs` | a handler replaces its node by a graph |
//! | `progress/` | advances instances: reports ended nodes, sends opened ones, cancels open ones. Any process may do so, any number of times |
//! | `handle.rs` | an instance, for the program that started it |

pub(crate) mod definition;
mod expand;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod shape;
pub(crate) mod shared;
mod starter;
