//! A worker: one driver per task on the user's runtime, and a keeper on a thread of its own.

pub(crate) mod builder;
pub(crate) mod driver;
pub(crate) mod identity;
pub(crate) mod monitor;
pub(crate) mod panics;
#[cfg(feature = "probes")]
pub(crate) mod probes;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod running;
pub(crate) mod signal;
pub(crate) mod stop;
mod supervisor;
mod take_name;
pub(crate) mod wake_blocking;
pub(crate) mod wake_pubsub;
pub(crate) mod workflow_runner;
