//! How long a call is repeated while Redis is away.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use super::patience::transfer_time;
use crate::error::Error;
use crate::pauses::Pauses;

/// The times of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until when it is repeated.
    pub(crate) deadline: Instant,
    /// The least that one attempt is given, also when the time for repeats is over.
    pub(crate) least: Duration,
}

impl Patience {
    /// For a call that was asked for at `since` and carries so many bytes: the time for a dispatch, beside the time that its
    /// bytes take. The last attempt may take a tenth longer.
    pub(crate) fn new(dispatch_timeout: Duration, since: Instant, bytes: usize) -> Patience {
        Patience { deadline: since + dispatch_timeout + transfer_time(bytes), least: dispatch_timeout / 10 }
    }

    /// Whether nothing is repeated any more.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The same for a call whose every attempt takes so much longer.
    pub(crate) fn and(self, time: Duration) -> Patience {
        Patience { deadline: self.deadline + time, least: self.least + time }
    }
}

/// Makes the call, and again while Redis cannot be reached or a failover is under way, as long as there is patience.
///
/// # Errors
/// What the last call said, or the one before when that did not end; `Connect` with a time-out where there was none.
pub(crate) async fn repeated<T, F>(patience: Patience, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let Patience { deadline, least } = patience;
    let mut pauses = Pauses::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut before = None;
    loop {
        let end = deadline.max(Instant::now() + least);
        let answer = tokio::time::timeout_at(end, call())
            .await
            .unwrap_or_else(|_| Err(before.take().unwrap_or_else(Error::timed_out)));
        match answer {
            Err(e) if e.is_outage() => {
                if Instant::now() >= deadline {
                    return Err(e);
                }
                tracing::debug!(error = %e.chain(), "redis cannot be reached; the call is repeated");
                tokio::time::sleep_until(deadline.min(Instant::now() + pauses.next())).await;
                // Nobody may have polled this for long. What may have been written then is not written again.
                if Instant::now() > deadline + least {
                    return Err(e);
                }
                before = Some(e);
            }
            answer => return answer,
        }
    }
}
