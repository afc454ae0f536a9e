//! What Heartline costs, in numbers that a faster machine does not change: commands a call, calls a job, bytes a job,
//! and what is left of jobs that are gone.
//!
//! The numbers are exact wherever that is possible. One that grows is a regression; one that shrinks is written down here
//! together with the change that made it so.

mod bytes;
mod commands;
mod history;
mod meter;
#[cfg(feature = "schedules")]
mod ticks;
mod workers;
