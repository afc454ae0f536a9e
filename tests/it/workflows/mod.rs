//! Workflows, on real servers: graphs that go on, end as their rules say, and outlive whoever dies.

mod crashes;
mod graphs;
mod kills;
mod losses;
mod reused;
mod rules;
mod seen;
mod told;
mod turns;
pub mod world;
