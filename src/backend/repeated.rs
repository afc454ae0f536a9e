//! How long a call is repeated while Redis is unreachable.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use super::timeouts::transfer_time;
use crate::backoff::Pauses;
use crate::error::{Error, Result};

/// The time limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadline {
    /// The call is repeated until then.
    pub(crate) deadline: Instant,
    /// The shortest time for one attempt, also after the deadline.
    pub(crate) least: Duration,
}

impl CallDeadline {
    /// For a call of this many bytes that was requested at `since`: the dispatch time-out plus the transfer time. The
    /// last attempt may exceed that by a tenth of the time-out.
    pub(crate) fn new(dispatch_timeout: Duration, since: Instant, bytes: usize) -> CallDeadline {
        CallDeadline { deadline: since + dispatch_timeout + transfer_time(bytes), least: dispatch_timeout / 10 }
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The same for a call whose attempts each take this much longer.
    pub(crate) fn and(self, time: Duration) -> CallDeadline {
        CallDeadline { deadline: self.deadline + time, least: self.least + time }
    }
}

/// Makes the call, and repeats it until the deadline while Redis is unreachable or a failover is under way.
///
/// # Errors
/// The error of the last call that ended; `Connect` with a time-out if none did.
pub(crate) async fn repeated<T, F>(
    CallDeadline { deadline, least }: CallDeadline,
    mut call: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
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
                tracing::debug!(error = %e.chain(), "redis is unreachable; will retry the call");
                tokio::time::sleep_until(deadline.min(Instant::now() + pauses.next())).await;
                // If this future was not polled for a long time, do not repeat the write: it may have been carried out
                // long ago.
                if Instant::now() > deadline + least {
                    return Err(e);
                }
                before = Some(e);
            }
            answer => return answer,
        }
    }
}
