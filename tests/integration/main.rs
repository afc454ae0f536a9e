//! Heartline through its public API, on a real server. Dead workers are pretended here; `crash.rs` really kills them.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod damage;
mod definitions;
mod dispatch;
mod events;
mod fixture;
mod liveness;
mod outcomes;
mod results;
mod stalls;
mod workers;
