//! What Heartline costs, in numbers that a faster machine does not change: commands a call, calls a job, bytes a job,
//! and what is left of jobs that are gone.
//!
//! The numbers are exact wherever that is possible. One that grows is a regression; one that shrinks is written down here
//! together with the change that made it so.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

// The tests of single scripts use the rest.
#[allow(dead_code)]
#[path = "../scripts/call.rs"]
mod call;

// The cuts of the bench that says what safety costs.
#[path = "../../benches/heartline/cuts.rs"]
mod cuts;

mod bytes;
mod commands;
mod history;
mod meter;
mod safety;
mod workers;
