//! Two-phase stall detection. Read this first.
//!
//! 1. **Snapshot.** When `candidates` is empty, one `RENAME` moves `active` to `candidates`, and the epoch grows by one. Every held job is
//!    now a candidate, at the same cost for ten jobs or a million.
//! 2. **Beat.** Every third of an interval, each worker sends a heartbeat that names the jobs it holds. A job whose
//!    token matches moves from `candidates` to `active`. No other job does.
//! 3. **Resolve.** One interval after the snapshot, the jobs left in `candidates` were silent all the time: they are stalled. Each call
//!    decides about a bounded number, by the table in `lua/sweep.lua`. Then the next snapshot is taken.
//!
//! **The witness rule** guards step 3. A job is stalled only if one process watched it stay silent for a whole interval
//! over a healthy connection. [`witness`] is that rule as a pure state machine. So no decision compares wall clocks.
//! After an outage, every live worker sends a heartbeat before any witness has watched a full interval.
//!
//! **One interval in force.** Every heartbeat and claim asks for its worker's interval. A larger one applies at once;
//! the next epoch takes the largest that was asked for in this one. So a job whose last sign of life was in epoch e is resolved at the end
//! of epoch e + 1 at the earliest. That epoch lasts at least as long as the job's own worker asked for.

pub(crate) mod action;
pub(crate) mod cadence;
pub(crate) mod recovery;
pub(crate) mod witness;
