//! The limits of a task over all workers: how many jobs run at a time, and how many start within a window.

use std::fmt;
use std::time::Duration;

use crate::config_error::{ConfigError, Faults};

const LEAST_WINDOW: Duration = Duration::from_millis(10);

const LONGEST_WINDOW: Duration = Duration::from_secs(86_400);

/// The shortest part of a window in which a paced rate counts separately.
const LEAST_PART: Duration = Duration::from_millis(100);

/// How many jobs of a task may start within a window, over all workers.
///
/// The rate holds for every window of this length, wherever it begins, by the clock of the server. Each run counts when it starts, also
/// after a retry or a crash. For this, a window has 32 steps, and a start counts until the end of its step. So a task reaches about 97 % of
/// its rate, and less with windows under 1 s.
///
/// ```
/// # use std::time::Duration;
/// # use heartline::{Rate, TaskOptions};
/// let burst = TaskOptions::new().rate(Rate::new(100, Duration::from_secs(60)));
/// let even = TaskOptions::new().rate(Rate::new(100, Duration::from_secs(60)).paced());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "pass it to TaskOptions::rate or Limit::rate"]
pub struct Rate {
    pub(crate) starts: u32,
    window: Duration,
    is_paced: bool,
}

impl Rate {
    /// At most this many starts, 1 to 1,000,000, in each window of 10 ms to 24 h.
    pub const fn new(starts: u32, window: Duration) -> Rate {
        Rate { starts, window, is_paced: false }
    }

    /// Spreads the starts over the window, instead of all at once at its beginning.
    ///
    /// The window is divided into equal parts of 100 ms or more, each with its share of the starts. A share is a whole number, so the rate
    /// may become a little lower. A window under 200 ms stays whole.
    pub const fn paced(self) -> Rate {
        Rate { is_paced: true, ..self }
    }

    /// The starts and the window that are counted: those of a part, if the rate is paced.
    fn counted(self) -> (u32, Duration) {
        if !self.is_paced {
            return (self.starts, self.window);
        }
        let parts = self.window.as_millis() / LEAST_PART.as_millis();
        let most = u32::try_from(parts).unwrap_or(u32::MAX).min(self.starts).max(1);
        // As much of the rate as possible comes first, then as many parts as possible.
        let parts = (most.div_ceil(2)..=most).max_by_key(|parts| (self.starts / parts * parts, *parts)).unwrap_or(1);
        (self.starts / parts, self.window / parts)
    }

    fn check(self, faults: &mut Faults) {
        faults.number("rate.starts", u64::from(self.starts), 1, 1_000_000);
        if self.window < LEAST_WINDOW || self.window > LONGEST_WINDOW {
            let fix = "use a window of seconds or minutes, with as many starts as fit into it";
            let value = format!("{:?}", self.window);
            faults.push(ConfigError::new("rate.window", value, "must be 10 ms to 24 h", fix));
        }
    }
}

/// The limits of a task over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_running: Option<u32>,
    pub(crate) rate: Option<Rate>,
}

impl Limits {
    pub(crate) fn any(self) -> bool {
        self.max_running.is_some() || self.rate.is_some()
    }

    /// As stored: the most running jobs, the starts and their window in us, with 0 for none.
    pub(crate) fn words(self) -> String {
        let (starts, window) = self.rate.map_or((0, Duration::ZERO), Rate::counted);
        // A longer window is the stricter one.
        format!("{} {starts} {}", self.max_running.unwrap_or(0), window.as_nanos().div_ceil(1_000))
    }

    /// Checks the numbers. `running` is the name of the first.
    pub(super) fn check_numbers(self, running: &'static str, faults: &mut Faults) {
        if let Some(jobs) = self.max_running {
            faults.number(running, u64::from(jobs), 1, 1_000_000);
        }
        if let Some(rate) = self.rate {
            rate.check(faults);
        }
    }

    pub(super) fn check(self, partitions: Option<u32>, faults: &mut Faults) {
        self.check_numbers("max_running", faults);
        if let Some(fault) = partitions.and_then(|count| self.too_small(count)) {
            faults.push(fault);
        }
    }

    /// The fault of a limit that would leave a partition without a start.
    pub(crate) fn too_small(self, partitions: u32) -> Option<ConfigError> {
        let limits = [("max_running", self.max_running), ("rate.starts", self.rate.map(|rate| rate.starts))];
        let (field, limit) =
            limits.into_iter().find_map(|(field, limit)| Some((field, limit.filter(|n| *n < partitions)?)))?;
        let rule = format!("must be at least {partitions}, since the {partitions} partitions of the task share it");
        Some(ConfigError::new(field, limit.to_string(), rule, "raise it, or use fewer partitions"))
    }

    pub(super) fn of_partition(self, count: u32) -> Limits {
        let rate = self.rate.map(|rate| Rate { starts: rate.starts / count, ..rate });
        Limits { max_running: self.max_running.map(|jobs| jobs / count), rate }
    }
}

impl fmt::Display for Limits {
    /// As declared: [`Limits::words`], or nothing without a limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.any() { f.write_str(&self.words()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(starts: u32, window_ms: u64) -> (u32, u64) {
        let (starts, window) = Rate::new(starts, Duration::from_millis(window_ms)).paced().counted();
        (starts, window.as_micros() as u64)
    }

    #[test]
    fn a_paced_rate_has_equal_parts_and_keeps_most_of_its_starts() {
        assert_eq!(paced(60, 60_000), (1, 1_000_000));
        assert_eq!(paced(1_000, 1_000), (100, 100_000));
        assert_eq!((paced(150, 1_000), paced(997, 1_000)), ((15, 100_000), (166, 166_666)));
        assert_eq!((paced(1, 10), paced(1_000_000, 10)), ((1, 10_000), (1_000_000, 10_000)));
        for (starts, window_ms) in [(7, 500), (999, 12_345), (1_000_000, 86_400_000), (3, 200)] {
            let (part, part_us) = paced(starts, window_ms);
            let parts = window_ms * 1_000 / part_us;
            assert!(part_us >= 100_000 && parts * u64::from(part) <= u64::from(starts), "{starts} in {window_ms} ms");
            assert!(parts * u64::from(part) * 10 >= u64::from(starts) * 8, "{starts} in {window_ms} ms");
        }
    }

    #[test]
    fn partitions_share_a_paced_rate_before_it_is_divided() {
        let limits = Limits { max_running: None, rate: Some(Rate::new(60, Duration::from_secs(60)).paced()) };
        assert_eq!(limits.too_small(2), None);
        assert_eq!(
            (limits.to_string(), limits.of_partition(2).to_string()),
            ("0 1 1000000".into(), "0 1 2000000".into())
        );
    }
}
