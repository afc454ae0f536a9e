//! Faults around a healthy worker: outages, lost replies, a blocked runtime, other clocks and intervals.
//!
//! No job is lost in any of them, and none is taken from a live worker.

// Helpers of tests may panic as tests do; the attribute tells clippy.

mod blocked_log;
mod blocked_runtime;
mod bounded_calls;
mod broken_parts;
mod clock_jumps;
mod closing_proxy;
mod comes_and_goes;
mod data_loss;
mod denied;
mod deploys;
mod dropped_workers;
mod farewells;
mod frozen;
mod greedy_handlers;
mod ground;
mod held_locks;
mod intervals;
mod keeper_ends;
mod large_on_bad_lines;
mod large_values;
mod late_copies;
mod long_lines;
mod lost_replies;
mod manual;
mod manual_beats;
mod many_waiters;
mod names;
mod neighbours;
mod on_risk;
mod outages;
mod poison;
mod refused_calls;
mod restarts;
mod runtimes;
#[cfg(feature = "schedules")]
mod schedule_kills;
#[cfg(feature = "schedules")]
mod schedules;
mod shown_text;
mod signals;
mod silent_lines;
mod slow_lines;
mod slow_sweeps;
mod slower_clock;
mod small_buffers;
mod starts;
mod surges;
mod unpolled;
mod waiting;
mod watch;
