//! Three primaries with a replica each: real servers, which are killed, frozen and failed over, and give their slots away.

#![cfg(test)]
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod cluster_api;
mod cluster_failovers;
mod six;
