use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The result of a condition: `true` or `Some` if it holds.
pub trait Settled {
    type Value;
    fn settled(self) -> Option<Self::Value>;
}

impl Settled for bool {
    type Value = ();
    fn settled(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Settled for Option<T> {
    type Value = T;
    fn settled(self) -> Option<T> {
        self
    }
}

/// Evaluates `condition` until it holds, and returns what it found.
///
/// Panics with `what` at the deadline, with the line of the caller. A condition that hangs counts as not true.
#[track_caller]
pub fn eventually<T: Settled>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> T,
) -> impl Future<Output = T::Value> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // The last evaluation gets a moment, so that a deadline of zero still evaluates once.
            let answer = tokio::time::timeout(left.max(LONGEST_PAUSE), condition()).await;
            if let Some(value) = answer.ok().and_then(Settled::settled) {
                return value;
            }
            assert!(Instant::now() < end, "not within {deadline:?}: {what} (waited for at {caller})");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
