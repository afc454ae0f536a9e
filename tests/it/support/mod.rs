//! Shared by the integration tests: private servers, dumps, a proxy that breaks connections, captured warnings.
//!
//! No test is skipped: without a Redis server it panics.

// Failures of helpers are failures of the test; the attribute also tells clippy so.
#![cfg(test)]

pub mod blocked;
#[cfg(feature = "schedules")]
pub mod call_log;
pub mod census;
mod checks;
mod child;
mod dump;
pub mod events;
mod eventually;
pub mod journal;
mod line;
pub mod load;
mod proxy;
pub mod puppet;
mod resp;
pub mod risk;
pub mod sentinel;
mod server;
mod settle_args;
mod stats;
mod tap;
pub mod task;
mod thorough;
pub mod tls;
pub mod turn;
mod warnings;
pub mod worker;

pub use child::Child;
pub use dump::{READ_ALL, dump, shown};
pub use eventually::eventually;
pub use line::Line;
pub use proxy::Proxy;
pub use server::{TestRedis, ask_port, checks_rights};
pub use settle_args::{early_begins, early_begins_of, plain_args, settle_args};
pub use stats::{calls, scripts_run, stat};
pub use tap::Tap;
pub use thorough::{is_thorough, rounds};
pub use warnings::{At, Warnings};

use std::time::Duration;

/// How long a condition may take to hold on the slowest machine that runs the tests.
pub const PATIENCE: Duration = Duration::from_secs(60);
