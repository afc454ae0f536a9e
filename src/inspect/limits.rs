//! Why no job of a task may be claimed, although jobs wait.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::backend::lanes::{FULL, RESTING};
use crate::limits::{stored_number, stored_score};
use crate::unix_time::{at_ms, ms_since_1970};

/// The limit of a task or of a key that keeps jobs waiting.
///
/// It is what the last claim found, so it may be over: a claim looks again when a job ends, and when a rest is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitReached {
    /// As many jobs run as [`TaskOptions::max_running`](crate::TaskOptions::max_running) allows.
    MaxRunning,
    /// The task rests: its [`rate`](crate::TaskOptions::rate) is used up, or a handler returned
    /// [`JobError::rate_limited`](crate::JobError::rate_limited).
    Resting {
        /// Until then no job starts.
        #[serde(rename = "until_ms", serialize_with = "ms_since_1970")]
        until: SystemTime,
    },
    /// As many jobs of its key run as [`TaskOptions::per_key`](crate::TaskOptions::per_key), or [`Lanes::set`](crate::Lanes::set), allows.
    KeyFull {
        /// Since when.
        #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
        since: SystemTime,
    },
    /// Its key is paused, see [`Lanes::pause`](crate::Lanes::pause).
    KeyPaused {
        /// Since when.
        #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
        since: SystemTime,
    },
    /// Its key rests: its rate is used up, or a handler of one of its jobs returned
    /// [`JobError::rate_limited`](crate::JobError::rate_limited).
    KeyResting {
        /// Until then no job of the key starts. If the rest is because of a rate, workers look again after a minute at the latest.
        #[serde(rename = "until_ms", serialize_with = "ms_since_1970")]
        until: SystemTime,
    },
}

impl LimitReached {
    /// Reads the score of a key in `turns`.
    pub(super) fn of_key(turn: &str, now_ms: u64) -> Option<LimitReached> {
        // The score of a key in turn may be a fraction.
        let score = stored_score(turn.parse().ok()?);
        if let Some(since_ms) = score.checked_sub(FULL) {
            return Some(LimitReached::KeyFull { since: at_ms(since_ms) });
        }
        let until_ms = score.checked_sub(RESTING).filter(|until_ms| *until_ms > now_ms)?;
        Some(LimitReached::KeyResting { until: at_ms(until_ms) })
    }

    /// Reads the field `full` of `meta`, as `lua/lib/rest.lua` does.
    pub(super) fn of(full: &str, now_ms: u64) -> Option<LimitReached> {
        if full == "running" {
            return Some(LimitReached::MaxRunning);
        }
        let mut words = full.split(' ').map(stored_number);
        let (until_ms, length_ms) = (words.next()??, words.next()??);
        let until_ms = until_ms.min(now_ms.saturating_add(length_ms));
        (until_ms > now_ms).then(|| LimitReached::Resting { until: at_ms(until_ms) })
    }
}

/// How many jobs may run, and how many may start within a time; `None` for any number.
type Numbers = (Option<u64>, Option<(u64, Duration)>);

/// Reads the options `limits` and `perKey`.
pub(super) fn numbers(declared: &str) -> Option<Numbers> {
    let words: Vec<u64> = declared.split(' ').map(stored_number).collect::<Option<_>>()?;
    let [most, starts, window_us] = words[..] else { return None };
    let rate = (starts > 0).then(|| (starts, Duration::from_micros(window_us)));
    Some(((most > 0).then_some(most), rate))
}

/// A limit in words. `declared` is the option `limits` or `perKey`.
pub(super) fn words(declared: &str, partitions: u64) -> Option<(Option<String>, Option<String>)> {
    let (most, rate) = numbers(declared)?;
    let rate = rate.map(|(starts, window)| format!("{} in {}", starts * partitions, super::text::span(window)));
    Some((most.map(|most| (most * partitions).to_string()), rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_over_at_its_end_and_never_longer_than_it_was_meant_to_be() {
        let of = |full| LimitReached::of(full, 1_000);
        let resting = |until_ms| Some(LimitReached::Resting { until: at_ms(until_ms) });
        assert_eq!(
            (of("running"), of("1500 900"), of("90000 900 handler")),
            (Some(LimitReached::MaxRunning), resting(1_500), resting(1_900))
        );
        assert_eq!((of("1000 900"), of("x 900"), of("")), (None, None, None));
    }

    #[test]
    fn limits_are_those_of_all_partitions() {
        let words = |declared| words(declared, 3);
        assert_eq!(words("2 0 0"), Some((Some("6".to_owned()), None)));
        assert_eq!(words("0 5 60000000"), Some((None, Some("15 in 1m".to_owned()))));
        assert_eq!((words(""), words("1 2")), (None, None));
    }
}
