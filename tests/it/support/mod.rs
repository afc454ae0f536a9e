//! Shared by the integration tests: private servers, dumps, a proxy that breaks connections, captured warnings.
//!
//! Other test crates include it with `#[path = "../support/mod.rs"] mod support;`. Every helper is used by its own
//! check in `checks`, so that none is unused. No test is skipped: without a Redis server it panics.

// Failures of helpers are failures of the test; the attribute also tells clippy so.
#![cfg(test)]

#[allow(dead_code)]
pub mod blocked;
#[allow(dead_code)]
pub mod census;
mod checks;
mod child;
mod dump;
#[allow(dead_code)]
pub mod events;
mod eventually;
#[allow(dead_code)]
pub mod journal;
mod line;
#[allow(dead_code)]
pub mod load;
mod proxy;
#[allow(dead_code)]
pub mod puppet;
mod resp;
#[allow(dead_code)]
pub mod risk;
#[allow(dead_code)]
pub mod sentinel;
mod server;
mod settle_args;
mod stats;
mod tap;
#[allow(dead_code)]
pub mod task;
mod thorough;
#[allow(dead_code)]
pub mod tls;
pub mod turn;
mod warnings;
#[allow(dead_code)]
pub mod worker;

pub use child::Child;
pub use dump::dump;
pub use eventually::eventually;
pub use line::Line;
pub use proxy::Proxy;
pub use server::{TestRedis, ask_port};
pub use settle_args::settle_args;
pub use stats::{calls, scripts_run, stat};
pub use tap::Tap;
pub use thorough::{is_thorough, rounds};
pub use warnings::{At, Warnings};

use std::time::Duration;

/// How long a condition may take to hold on the slowest machine that runs the tests.
pub const PATIENCE: Duration = Duration::from_secs(60);
