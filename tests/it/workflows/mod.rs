//! Workflows on real servers: graphs that continue, end by their rules, and survive the death of any process.

mod crashes;
mod graphs;
mod headers;
mod kills;
mod losses;
mod reused;
mod rules;
#[cfg(feature = "schedules")]
mod scheduled;
mod seen;
mod told;
mod turns;
pub mod world;
