//! Bounds, each with its reason. `backend/scripts.rs` inserts LARGE, NARROW_BYTES, BATCH, BRIEF and FEW into the scripts.

use std::time::Duration;

/// The longest time that any setting accepts: 10 years of 365 days. It cannot overflow on the way to Redis.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The most bytes of JSON that a handler may return, so that one value does not occupy a slow connection for minutes.
pub(crate) const RESULT_LIMIT: usize = 64 * 1024 * 1024;

/// The longest error message, and the longest reason of a cancel, that are stored with a job, in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 4096;

/// Values of more bytes use a connection of their own, so that no other call waits for them.
pub(crate) const LARGE: usize = 512 * 1024;

/// The most jobs in one call of `dispatch` or `settle`: larger batches take longer per job.
pub(crate) const BATCH: usize = 200;

/// The most ended nodes that one call reports to a workflow, each of which may open another (`OPENS` in the scripts).
pub(crate) const ENDS: usize = 64;

/// The most bytes of payloads or results in one call of many jobs: more would block the server for milliseconds.
pub(crate) const BATCH_BYTES: usize = LARGE;

/// Used instead of `BATCH_BYTES` in answers of workflow scripts, and if the server closes connections at larger answers.
/// Every server can send this many bytes.
pub(crate) const NARROW_BYTES: usize = 16 * 1024;

/// The most nodes of a graph, and the most edges between them.
pub(crate) const MOST_NODES: usize = 10_000;
pub(crate) const MOST_EDGES: u64 = 100_000;

/// The most nodes that one node waits for.
pub(crate) const MOST_INPUTS: u64 = 10_000;

/// The most nodes of a workflow that one call writes.
pub(crate) const NODE_BATCH: usize = 500;

/// How deep graphs may nest: a nested graph and all graphs around it end in one call.
pub(crate) const DEPTH: usize = 8;

/// The most bytes of the payload or value of a workflow node. The workflow keeps both until it is removed.
pub(crate) const NODE_LIMIT: usize = 1024 * 1024;

/// How many dependents of a node one record of its shape names; `lua/lib/flow.lua` relies on it.
pub(crate) const DEPENDENTS: usize = 500;

/// The most bytes of an error in its event.
pub(crate) const BRIEF: usize = 160;

/// The most jobs whose state one call reads.
pub(crate) const LOOK_BATCH: usize = 500;

/// The most jobs that one heartbeat names.
pub(crate) const BEAT_BATCH: usize = 500;

/// The fewest candidates that one sweep may resolve. In a table that was once large, SSCAN may visit ten buckets per returned entry, so a
/// small count keeps the call short.
pub(crate) const LEAST_SWEEP: usize = 25;

/// The most candidates that one sweep may resolve, over slow connections. This number takes some milliseconds of the server's time.
pub(crate) const MOST_SWEEP: usize = 200;

/// If fewer than one in this many running jobs is still a candidate, the table of candidates is mostly empty and slow to scan. It is shrunk
/// first.
pub(crate) const FEW: u64 = 1000;

/// A sweep makes one call to shrink that table per this many running jobs.
pub(crate) const SHRINK_STEP: u64 = 4000;

/// No job younger than this is trimmed, in milliseconds: a dispatch that is repeated after a lost reply must find the id that it wrote.
pub(crate) const MIN_AGE_MS: u64 = 60_000;

/// The most partitions of a task.
pub(crate) const MOST_PARTITIONS: u32 = 64;

/// The largest whole number that scripts hold exactly. A larger number in Redis is read as this one, so that no sum of
/// such numbers overflows.
pub(crate) const MOST_STORED: u64 = (1 << 53) - 1;

/// Parses a number that Redis stores as text, at most [`MOST_STORED`]; `None` for any other text.
pub(crate) fn stored_number(text: &str) -> Option<u64> {
    text.parse().ok().map(|number: u64| number.min(MOST_STORED))
}

/// A score of a sorted set as a whole number, at most [`MOST_STORED`].
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
