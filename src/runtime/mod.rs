//! What one worker process holds and all its parts share.

pub(crate) mod ahead_watch;
pub(crate) mod bells;
pub(crate) mod context;
pub(crate) mod death_proof;
pub(crate) mod handler;
pub(crate) mod held_jobs;
pub(crate) mod identity;
pub(crate) mod incidents;
pub(crate) mod lost_runs;
pub(crate) mod note_store;
pub(crate) mod notes;
pub(crate) mod observer;
pub(crate) mod outbox;
pub(crate) mod permits;
pub(crate) mod rights;
#[cfg(feature = "schedules")]
pub(crate) mod schedules;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod unacked_claims;
pub(crate) mod upstream;
pub(crate) mod waits;
pub(crate) mod wake;
pub(crate) mod workflow_queue;
