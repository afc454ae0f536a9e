//! Three primaries with a replica each: real servers that are killed, frozen and failed over, and whose slots move.

mod anew;
mod api;
mod away;
mod columns;
mod connections;
mod cuts;
mod failovers;
mod quiet;
mod rights;
mod risk;
#[cfg(feature = "schedules")]
mod schedules;
pub mod six;
mod workflows;
