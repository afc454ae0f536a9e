//! Workflows: graphs of jobs that survive the death of any worker.

pub(crate) mod definition;
mod expand;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod shape;
mod starter;
