//! Heartline.

mod app;
mod context;
mod dispatch;
mod error;
mod events;
mod handle;
mod job;
mod maintenance;
mod options;
mod stall;
mod state;
mod store;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use app::{App, AppBuilder};
pub use context::Context;
pub use dispatch::Dispatch;
pub use error::{ConfigError, ConfigErrors, Error, Interrupted, JobError, Result};
pub use events::{Event, RecvError, Subscription};
pub use handle::{CancelOutcome, JobHandle};
pub use job::{Failure, JobId, codes};
pub use options::{
    EventMode, Heartbeat, Jitter, OnRisk, Priority, Retention, RetentionLimit, RetryPolicy, StallOptions, TaskOptions,
};
pub use stall::action::{StallAction, StallReason, StalledEvent};
pub use state::JobState;
pub use task::{Job, TaskCounts, TaskRef};
pub use worker::{StopReason, Worker, WorkerId};
