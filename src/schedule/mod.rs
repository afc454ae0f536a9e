//! Recurring jobs: when a schedule has ticks, and which of them one call fires. Without I/O and without a clock.
//!
//! A *tick* is a nominal time of a schedule (`due`). Jitter only delays the call that fires it (`at`). All times are ms
//! since 1970.

mod check;
mod cron;
pub(crate) mod ids;
pub(crate) mod info;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod rule;
pub(crate) mod stored;
mod zone;
