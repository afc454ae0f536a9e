//! A primary with replicas under sentinels: real servers, killed, frozen and failed over.

mod connections;
mod cuts;
mod failovers;
mod risk;
#[cfg(feature = "schedules")]
mod schedules;
pub mod trio;
