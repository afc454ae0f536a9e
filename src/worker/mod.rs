//! A worker: one driver per task on the user's runtime, and a keeper on a thread of its own.

pub(crate) mod builder;
pub(crate) mod courier;
mod crew;
pub(crate) mod driver;
pub(crate) mod ear;
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
mod take_name;
pub(crate) mod wake;
