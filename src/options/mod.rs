//! What can be set for a task, where it may be set, and what follows when it is not.
//!
//! Precedence, field by field: dispatch, then task, then the app's defaults, then the crate's. The interval and
//! the heartbeat mode cannot be set for a single job, since a task has one epoch.

pub(crate) mod modes;
pub(crate) mod overrides;
mod phases;
pub(crate) mod resolved;
pub(crate) mod retention;
pub(crate) mod retry;
pub(crate) mod stall;
pub(crate) mod task;
pub(crate) mod validate;
