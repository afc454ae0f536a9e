//! How long to wait before something that failed is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses that double from the first to the longest, each with up to as much again by chance, so that those who failed together
/// do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    /// Made when it is needed first: most calls are answered.
    backoff: Option<ExponentialBackoff>,
}

/// How long it takes until a command that was denied is tried again: somebody has to grant it first.
pub(crate) const DENIED_PAUSE: Duration = Duration::from_secs(30);

impl Pauses {
    /// Those of a loop that connects, or calls, again until it is answered, however long that takes: from 20 ms to 1 s.
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
        // It never ends.
        backoff.next().unwrap_or(self.longest)
    }

    /// It worked: the next one is the first again.
    pub(crate) fn reset(&mut self) {
        self.backoff = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_grow_to_the_longest_and_begin_anew() {
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
