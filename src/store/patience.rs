//! How long a call waits for its answer.

use std::time::{Duration, Instant};

/// How long a connection may take to come up.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call waits for its answer before it is repeated, but for the time that its bytes take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// No call is worth more: by then a connection that gives no answer is a dead one.
pub(super) const LONGEST_RESPONSE: Duration = Duration::from_secs(24 * 3600);

/// The slowest line that a call is given time for, in bytes a second. A call that runs out of time is given twice as
/// much when it is repeated.
const LINE_BYTES_PER_SECOND: u64 = 256 * 1024;

/// How long so many bytes may be on their way.
pub(crate) fn transfer_time(bytes: usize) -> Duration {
    Duration::from_millis((bytes as u64).saturating_mul(1000) / LINE_BYTES_PER_SECOND)
}

/// How long a call that carries so many bytes waits for its answer.
pub(crate) fn response_time(bytes: usize) -> Duration {
    RESPONSE_TIMEOUT + transfer_time(bytes)
}

/// Twice the time, for a call that is made again after it was too long under way.
pub(crate) fn doubled(time: Duration) -> Duration {
    time.saturating_mul(2).min(LONGEST_RESPONSE)
}

/// How long calls that are given up may have waited together, without an answer to any, before their connection is left.
const UNANSWERED: Duration = Duration::from_secs(1);

/// How long a connection has said nothing to those who waited for it.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// How long calls that were given up had waited since the last answer; times at which several waited count once.
    waited: Duration,
    /// Up to when that is counted.
    counted: Option<Instant>,
}

impl Silence {
    /// Something was answered.
    pub(super) fn answered(&mut self) {
        *self = Silence { waited: Duration::ZERO, counted: Some(Instant::now()) };
    }

    /// A call that was begun then was given up. Returns whether the connection is to be left.
    pub(super) fn given_up(&mut self, begun: Instant) -> bool {
        let (now, from) = (Instant::now(), self.counted.map_or(begun, |counted| counted.max(begun)));
        self.waited += now.saturating_duration_since(from);
        self.counted = Some(now);
        self.waited > UNANSWERED
    }
}
