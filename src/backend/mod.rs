//! The only room that knows connections, keys and scripts. Each file that calls scripts has one subject; its first line names them.
//!
//! Dispatch and settle share one multiplexed connection, reads of jobs another, and reads of values a third. The keeper, the
//! wake block, the cancel hints, each event reader and each large value have their own.

pub(crate) mod actions;
pub(crate) mod address;
pub(crate) mod app_runtime;
pub(crate) mod audit;
pub(crate) mod call_context;
pub(crate) mod classify;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod declare;
pub(crate) mod dispatch;
#[cfg(feature = "testing")]
pub(crate) mod drain;
#[cfg(feature = "schedules")]
mod due_schedules;
pub(crate) mod engine;
pub(crate) mod extend_locks;
pub(crate) mod hash_slot;
pub(crate) mod hints;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod large_value;
pub(crate) mod narrow;
pub(crate) mod note;
pub(crate) mod overview;
pub(crate) mod partitions;
pub(crate) mod presence;
pub(crate) mod quiet;
pub(crate) mod repeated;
pub(crate) mod replicated;
pub(crate) mod reply;
pub(crate) mod report;
pub(crate) mod retention;
#[cfg(feature = "schedules")]
pub(crate) mod schedule_calls;
#[cfg(feature = "schedules")]
pub(crate) mod schedule_firing;
#[cfg(feature = "schedules")]
mod schedule_info;
#[cfg(feature = "schedules")]
pub(crate) mod schedule_put;
#[cfg(feature = "schedules")]
mod schedule_rows;
#[cfg(feature = "schedules")]
pub(crate) mod schedules;
pub(crate) mod scripts;
pub(crate) mod sentinel;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod settle;
pub(crate) mod shared_connection;
pub(crate) mod single_flight;
pub(crate) mod slot_map;
pub(crate) mod stream_reader;
pub(crate) mod streams;
pub(crate) mod sweep;
pub(crate) mod tables;
pub(crate) mod task_registry;
pub(crate) mod timeouts;
pub(crate) mod turns;
pub(crate) mod unique;
pub(crate) mod url;
pub(crate) mod values;
pub(crate) mod wake_blocking;
pub(crate) mod wake_pubsub;
pub(crate) mod workers;
pub(crate) mod workflow;
