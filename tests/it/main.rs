//! The tests of the crate, in one binary: they share the private servers of [`support`].
//!
//! `cargo test --test it -- faults::outages` runs a part. Each folder says in its `mod.rs` what it proves.

#![cfg(test)]

#[cfg(all(unix, feature = "schedules"))]
mod chaos;
#[cfg(unix)]
mod cluster;
mod costs;
#[cfg(unix)]
mod crash;
mod faults;
mod fuzz;
mod house;
mod integration;
#[cfg(unix)]
mod limits;
mod scripts;
#[cfg(unix)]
mod sentinel;
mod simulation;
#[cfg(target_os = "linux")]
mod soak;
mod support;
#[cfg(unix)]
mod workflows;
