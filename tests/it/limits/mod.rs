//! Limits of keys and tasks over real processes that are killed, frozen, deployed and failed over.

mod children;
mod deploys;
pub mod failovers;
mod freezes;
mod log;
mod partitions;
mod rates;
mod traffic;
