//! The producer's side: a task by name, its jobs, and the handles to them.

pub(crate) mod cancel;
pub(crate) mod definition;
pub(crate) mod dispatch;
pub(crate) mod dispatch_buffer;
pub(crate) mod dispatcher;
pub(crate) mod handle;
pub(crate) mod job;
#[cfg(feature = "axum")]
pub(crate) mod responses;
#[cfg(feature = "schedules")]
pub(crate) mod schedules;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod task_ref;
