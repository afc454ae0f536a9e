//! Bounds, each with its reason. Those that scripts keep too are written into them, by
//! `store/scripts.rs`: LARGE, BATCH, BRIEF and FEW.

use std::time::Duration;

/// Longest time that any setting takes: 10 years of 365 days. Far from every overflow on the way to Redis.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The most bytes of JSON that a handler may return: a slow line should not take minutes for one value.
pub(crate) const RESULT_LIMIT: usize = 64 * 1024 * 1024;

/// Longest message that is stored with a job that failed, in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 4096;

/// Values of more bytes travel on a connection of their own, where nothing else waits behind them.
pub(crate) const LARGE: usize = 512 * 1024;

/// The most jobs that one call of `dispatch` or `settle` carries: larger batches are slower a job.
pub(crate) const BATCH: usize = 200;

/// Of how many ends of nodes a workflow is told in one call: of twice as many a call takes over 2 ms.
pub(crate) const ENDS: usize = 100;

/// The most bytes of payloads, or of results, that one call of many jobs carries: more would keep the server from others for
/// milliseconds.
pub(crate) const BATCH_BYTES: usize = LARGE;

/// The same as `BATCH_BYTES` where the server closes connections under larger answers: the least that any server lets out.
pub(crate) const NARROW_BYTES: usize = 16 * 1024;

/// The most nodes that a graph has, and how often one of them waits for another.
pub(crate) const MOST_NODES: usize = 10_000;
pub(crate) const MOST_EDGES: u64 = 100_000;

/// The most nodes that one waits for.
pub(crate) const MOST_INPUTS: u64 = 10_000;

/// The most nodes of a workflow that one call writes.
pub(crate) const NODE_BATCH: usize = 500;

/// How deep graphs stand in graphs at the most: a child and what it is of end in one call.
pub(crate) const DEPTH: usize = 8;

/// The most bytes of the payload, or of the value, of a node of a workflow: the workflow keeps it until it goes itself.
pub(crate) const NODE_LIMIT: usize = 1024 * 1024;

/// How many of those that wait for a node one record of its shape names; `lua/lib/flow.lua` counts on it.
pub(crate) const DEPENDENTS: usize = 500;

/// The most bytes of an error that its event has.
pub(crate) const BRIEF: usize = 160;

/// The most jobs of which one call asks where they are.
pub(crate) const LOOK_BATCH: usize = 500;

/// The most jobs that one beat names.
pub(crate) const BEAT_BATCH: usize = 500;

/// The fewest candidates that one sweep may resolve. In a table that was once large, SSCAN visits ten buckets for each
/// one that it may return, so a small count is what keeps a call short.
pub(crate) const LEAST_SWEEP: usize = 25;

/// The most candidates that one sweep may resolve, where round trips are long: some milliseconds of the server's time.
pub(crate) const MOST_SWEEP: usize = 200;

/// Where less than one in so many of the running jobs is still a candidate, the table of the candidates is mostly empty, and to
/// look for them takes long: it is made small before.
pub(crate) const FEW: u64 = 1000;

/// For how many running jobs it takes one call that makes that table smaller.
pub(crate) const SHRINK_STEP: u64 = 4000;

/// Nothing younger than this is trimmed, in milliseconds: a dispatch whose reply was lost is repeated, and must
/// find the id that it wrote.
pub(crate) const MIN_AGE_MS: u64 = 60_000;

/// The most partitions that a task has.
pub(crate) const MOST_PARTITIONS: u32 = 64;

/// The largest whole number that scripts keep exactly. A larger one in Redis is read as this one: then no sum of such numbers overflows.
pub(crate) const MOST_STORED: u64 = (1 << 53) - 1;

/// A number that Redis keeps as text, [`MOST_STORED`] at the most; `None` for any other text.
pub(crate) fn stored_number(text: &str) -> Option<u64> {
    text.parse().ok().map(|number: u64| number.min(MOST_STORED))
}

/// A score of a sorted set as a whole number, [`MOST_STORED`] at the most.
pub(crate) fn stored_score(score: f64) -> u64 {
    (score as u64).min(MOST_STORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_number_is_read_within_its_bound() {
        let read = ["7", "18446744073709551615", "18446744073709551616", "-1", "1.5", ""].map(stored_number);
        assert_eq!(read, [Some(7), Some(MOST_STORED), None, None, None, None]);
        let read = [7.9, -1.0, f64::INFINITY, f64::NAN, 1e300].map(stored_score);
        assert_eq!(read, [7, 0, MOST_STORED, 0, MOST_STORED]);
    }
}
