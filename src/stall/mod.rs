//! Two-phase stall detection, in prose. Read this first.
//!
//! 1. **Snapshot.** When `candidates` is empty, `active` is renamed to `candidates` and the epoch grows by one. At one
//!    stroke, and at the same cost for ten jobs or a million, every running job has become a candidate.
//! 2. **Beat.** Every third of an interval each worker names the jobs that it holds; each whose token matches leaves
//!    `candidates` for `active`. No other job does.
//! 3. **Resolve.** One interval after the snapshot, what is left in `candidates` was silent all the time: it is stalled.
//!    A bounded number a call is decided, by the table in `lua/sweep.lua`. Then the next snapshot is taken.
//!
//! **The witness rule** guards step 3: no job is declared stalled unless one process watched it stay silent for a whole
//! interval over a healthy connection. [`witness`] is that rule as a pure state machine. With it no decision compares
//! wall clocks, and after an outage every live worker beats before any witness has watched a full interval.
//!
//! **One interval for all.** Every beat and every claim asks for its worker's interval. A larger ask counts at once; the
//! next epoch takes the largest ask of this one. So a job whose last sign of life fell in epoch e is resolved no sooner
//! than the end of epoch e + 1, which lasts at least as long as its own worker asked for.

pub(crate) mod action;
pub(crate) mod cadence;
pub(crate) mod recovery;
pub(crate) mod witness;
