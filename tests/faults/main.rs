//! What goes wrong around a worker that is fine: outages, lost replies, a blocked runtime, other clocks and intervals.
//!
//! In all of it no job is lost, and none is taken from a worker that lives.

// Helpers of tests may fail as tests do; the attribute tells clippy so.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod blocked_runtime;
mod clock_jumps;
mod intervals;
mod keeper_ends;
mod lost_replies;
mod manual;
mod on_risk;
mod outages;
mod site;
