//! Options, where they may be set, and their defaults.
//!
//! Precedence, field by field: dispatch, then task, then the app's defaults, then the crate's. A task has one epoch, so the interval and
//! the heartbeat mode cannot be set for a single job.

mod builder;
pub(crate) mod key;
pub(crate) mod modes;
pub(crate) mod overrides;
mod phases;
pub(crate) mod rate;
pub(crate) mod resolved;
pub(crate) mod retention;
pub(crate) mod retry;
pub(crate) mod stall;
pub(crate) mod task;
pub(crate) mod unique;
pub(crate) mod validate;
