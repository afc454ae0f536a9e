//! Time-outs of calls.

use std::time::{Duration, Instant};

/// How long it may take to establish a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call waits for its answer before it is repeated, plus the time to transfer its bytes.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time-out: a connection without an answer for this long is dead.
pub(super) const LONGEST_RESPONSE: Duration = Duration::from_secs(24 * 3600);

/// The slowest link that calls allow for, in bytes a second. If a call times out, its repeat gets twice the time.
const LINK_BYTES_PER_SECOND: u64 = 256 * 1024;

/// The time that `bytes` may need on the link.
pub(crate) fn transfer_time(bytes: usize) -> Duration {
    Duration::from_millis((bytes as u64).saturating_mul(1000) / LINK_BYTES_PER_SECOND)
}

/// How long a call with this many bytes waits for its answer.
pub(crate) fn response_time(bytes: usize) -> Duration {
    RESPONSE_TIMEOUT + transfer_time(bytes)
}

/// The time for the repeat of a call that timed out.
pub(crate) fn doubled(time: Duration) -> Duration {
    time.saturating_mul(2).min(LONGEST_RESPONSE)
}

/// For how long all abandoned calls together may have waited, without any answer, before their connection is dropped.
const UNANSWERED: Duration = Duration::from_secs(1);

/// How long a connection has not answered calls that were abandoned.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// For how long abandoned calls have waited since the last answer. Time in which several waited counts once.
    waited: Duration,
    /// The time up to which waiting was counted.
    counted: Option<Instant>,
}

impl Silence {
    pub(super) fn answered(&mut self) {
        *self = Silence { waited: Duration::ZERO, counted: Some(Instant::now()) };
    }

    /// Records that a call that began at `begun` was abandoned. Returns whether to drop the connection.
    pub(super) fn given_up(&mut self, begun: Instant) -> bool {
        let (now, from) = (Instant::now(), self.counted.map_or(begun, |counted| counted.max(begun)));
        self.waited += now.saturating_duration_since(from);
        self.counted = Some(now);
        self.waited > UNANSWERED
    }
}
