//! Data that Heartline did not write, in every key: what reads it must not panic, hang or harm other jobs.
//!
//! Each test makes a few rounds; `HEARTLINE_FUZZ=<rounds>` makes more. A failure prints its seed and the last changes.
//! `HEARTLINE_FUZZ_SEED=<seed>` repeats it.

mod hostile;
mod readers;
mod workers;
