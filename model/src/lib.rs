//! A model of the stall detector, for an exhaustive search: two workers, two jobs, one failover, and a few faults.
//!
//! It follows the rules of `lua/sweep.lua`, `lua/extend_locks.lua`, `lua/settle.lua` and `src/stall/witness.rs`. [`Rules`]
//! takes one of them away. [`Bounds`] says which faults may happen. Time is counted in ticks of the shorter heartbeat
//! period. Every age is capped where it no longer matters, so the search ends although time does not.

mod action;
mod hash;
mod rest;
mod server;
mod simplify;
mod state;
mod trace;
mod worker;

pub use action::Action;
pub use state::{Bounds, Rules, State, Sweeps};
pub use trace::trace;

/// How many jobs there are.
pub const JOBS: usize = 2;
/// How many workers there are.
pub const WORKERS: usize = 2;
/// The interval that each worker declares, in ticks. Its heartbeat period is a third of it.
pub const INTERVALS: [u8; WORKERS] = [3, 6];
