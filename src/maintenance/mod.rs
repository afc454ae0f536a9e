//! Background services of a worker, run by its keeper: each has `run_once`, which returns what it did.

pub(crate) mod presence;
pub(crate) mod retention;
