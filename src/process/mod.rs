//! What one worker process holds and all its parts share.

pub(crate) mod context;
pub(crate) mod data;
pub(crate) mod death;
pub(crate) mod desk;
pub(crate) mod figures;
pub(crate) mod handler;
pub(crate) mod held;
pub(crate) mod identity;
pub(crate) mod incidents;
pub(crate) mod lost_runs;
pub(crate) mod note_store;
pub(crate) mod notes;
pub(crate) mod observer;
pub(crate) mod open_claims;
pub(crate) mod outbox;
pub(crate) mod rights;
pub(crate) mod shapes;
pub(crate) mod shared;
pub(crate) mod slots;
pub(crate) mod task;
pub(crate) mod upstream;
pub(crate) mod waits;
pub(crate) mod wake;
