//! Distributions of durations. Any thread may add to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::unix_time::as_ms;

/// The bounds of all buckets of durations, in seconds: 1 ms to 1 h.
pub(crate) const BOUNDS: [f64; 13] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];

/// A distribution of durations: their number, their sum, and a histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LatencySummary {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    #[serde(rename = "sum_ms", serialize_with = "as_ms")]
    pub sum: Duration,
    /// Upper bounds in seconds, each with the number of durations up to it and above the previous bound. The last bound
    /// is infinite, null in JSON.
    pub buckets: Vec<(f64, u64)>,
}

/// A [`LatencySummary`] to add durations to.
#[derive(Debug)]
pub(crate) struct Timing {
    count: AtomicU64,
    sum_us: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len() + 1],
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::new()
    }
}

impl Timing {
    pub(crate) const fn new() -> Timing {
        let buckets = [const { AtomicU64::new(0) }; BOUNDS.len() + 1];
        Timing { count: AtomicU64::new(0), sum_us: AtomicU64::new(0), buckets }
    }

    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The durations added so far.
    pub(crate) fn read(&self) -> LatencySummary {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        LatencySummary {
            count: read(&self.count),
            sum: Duration::from_micros(read(&self.sum_us)),
            buckets: bounds.zip(self.buckets.iter().map(read)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_under_the_first_bound_that_holds_it() {
        let timing = Timing::default();
        for ms in [0, 1, 2, 5, 4_000_000] {
            timing.add(Duration::from_millis(ms));
        }
        let spread = timing.read();
        assert_eq!((spread.count, spread.sum), (5, Duration::from_millis(4_000_008)));
        let counts: Vec<u64> = spread.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(spread.buckets[13].0, f64::INFINITY);
    }
}
