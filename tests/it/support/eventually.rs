use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a condition may answer: `true` or `Some` when it has come true.
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

/// Asks `condition` again and again until it comes true, and gives what it found.
///
/// Panics with `what` at the deadline, naming the line that waited. A condition that hangs counts as not true.
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
            // The last look is given a moment, so that a deadline of zero still looks once.
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
