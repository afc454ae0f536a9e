//! A primary with replicas under sentinels: real servers, which are killed, frozen and failed over.

#![cfg(test)]
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod failovers;
mod sentinel_connections;
mod sentinel_cuts;
mod sentinel_risk;
mod trio;
