//! Heartline through its public API, on a real server. Dead workers are pretended here; `crash.rs` really kills them.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod damage;
mod definitions;
mod dispatch;
mod events;
mod fan_out;
mod fixture;
mod liveness;
mod logs;
mod observer;
mod outcomes;
mod put_off;
mod results;
mod stalls;
mod test_kit;
mod workers;
