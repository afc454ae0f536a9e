//! Durations counted by size, in buckets on a logarithmic scale, and quantiles of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets. The first is for durations below 1 ms. Each other one ends at √2 times its begin; the last has no end, and
/// begins at 24 days.
pub(crate) const BUCKETS: usize = 64;

/// The number of durations in each bucket.
pub(crate) type BucketCounts = [u64; BUCKETS];

/// Counts durations. Any thread may add to it.
#[derive(Debug)]
pub(crate) struct LogBuckets([AtomicU64; BUCKETS]);

impl Default for LogBuckets {
    fn default() -> LogBuckets {
        LogBuckets([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl LogBuckets {
    pub(crate) fn add(&self, took: Duration) {
        self.0[bucket_of(took)].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out the buckets that are not empty: their numbers and counts.
    pub(crate) fn take(&self) -> Vec<(usize, u64)> {
        let counts = self.0.iter().map(|count| count.swap(0, Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

fn bucket_of(took: Duration) -> usize {
    let ms = took.as_secs_f64() * 1000.0;
    if ms < 1.0 { 0 } else { ((ms.log2() * 2.0) as usize + 1).min(BUCKETS - 1) }
}

/// The duration that this share of the durations does not exceed, at most a fifth too long or too short. `None` if there are none.
pub(crate) fn quantile(counts: &BucketCounts, share: f64) -> Option<Duration> {
    let all: u64 = counts.iter().sum();
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let bucket = counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    })?;
    // The middle of the bucket, on the scale.
    let ms = if bucket == 0 { 0.5 } else { ((bucket as f64 - 0.5) / 2.0).exp2() };
    Some(Duration::from_secs_f64(ms / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_fifth_off() {
        for ms in [1, 2, 3, 10, 99, 1_000, 12_345, 3_600_000, 86_400_000] {
            let buckets = LogBuckets::default();
            (0..9).for_each(|_| buckets.add(Duration::from_micros(10)));
            buckets.add(Duration::from_millis(ms));
            let mut counts = [0; BUCKETS];
            buckets.take().into_iter().for_each(|(bucket, count)| counts[bucket] = count);
            assert!(buckets.take().is_empty());
            assert!(quantile(&counts, 0.9).unwrap() < Duration::from_millis(1));
            let found = quantile(&counts, 0.95).unwrap().as_secs_f64() * 1000.0;
            assert!((found / ms as f64 - 1.0).abs() < 0.2, "{found} for {ms}");
        }
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }

    #[test]
    fn all_durations_have_a_bucket() {
        assert_eq!(bucket_of(Duration::ZERO), 0);
        assert_eq!(bucket_of(Duration::from_millis(1)), 1);
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }
}
