//! Pauses between attempts to connect or to call. For the delay before a retry of a job see `options/retry.rs`.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses that double from the first to the longest. Each is extended at random by up to its own length, so that
/// callers that failed together do not return together.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    /// Made on first use: most calls succeed.
    backoff: Option<ExponentialBackoff>,
}

/// How long to wait after a denied command: a person has to grant the right first.
pub(crate) const DENIED_PAUSE: Duration = Duration::from_secs(30);

impl Pauses {
    /// For a loop that connects or calls until it gets an answer: 20 ms to 1 s.
    pub(crate) fn until_answered() -> Pauses {
        Pauses::new(Duration::from_millis(20), Duration::from_secs(1))
    }

    pub(crate) fn new(first: Duration, longest: Duration) -> Pauses {
        Pauses { first, longest, backoff: None }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let backoff = self.backoff.get_or_insert_with(|| {
            let builder = ExponentialBuilder::default().with_min_delay(self.first).with_max_delay(self.longest);
            builder.with_jitter().without_max_times().build()
        });
        // The backoff has no end.
        backoff.next().unwrap_or(self.longest)
    }

    /// After a success, the pauses begin with the first again.
    pub(crate) fn reset(&mut self) {
        self.backoff = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_restart() {
        let (first, longest) = (Duration::from_millis(20), Duration::from_secs(1));
        let mut pauses = Pauses::new(first, longest);
        let begins = |pause: Duration| pause >= first && pause <= first * 2;
        assert!(begins(pauses.next()));
        assert!((0..100).map(|_| pauses.next()).all(|pause| pause <= longest * 2));
        assert!(pauses.next() >= longest);
        pauses.reset();
        assert!(begins(pauses.next()));
    }
}
