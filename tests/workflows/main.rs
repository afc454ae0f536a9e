//! Workflows, on real servers: graphs that go on, end as their rules say, and outlive whoever dies.

#![cfg(test)]
#![cfg(unix)]

// The other tests use the rest.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

mod crashes;
mod graphs;
mod kills;
mod losses;
mod reused;
mod rules;
mod seen;
mod told;
mod turns;
mod world;
