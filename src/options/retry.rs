//! How many runs a job gets, and how long it waits between them.

use std::time::Duration;

use backon::{BackoffBuilder, ConstantBuilder, ExponentialBuilder};
use serde::{Deserialize, Serialize};

use crate::config_error::Faults;
use crate::limits::LONGEST;
use crate::unix_time::{ms, opt_ms, to_ms};

/// The longest delay of a growing backoff, unless another is set.
const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(600);

/// A growing backoff is computed step by step and stops growing after this many steps. So a call takes microseconds.
/// Only factors below about 1.002 reach this bound before their longest delay.
const GROWTH_STEPS: u32 = 10_000;

/// How many runs a job gets and how long it waits between them.
///
/// A policy applies as a whole: one set for the task replaces the app's, and one given with a dispatch replaces both.
/// Stalls use no attempt, except under [`OnCrash::Retry`](crate::OnCrash::Retry). A requeue at shutdown uses none.
/// Delays are kept in whole milliseconds, rounded up.
///
/// ```
/// # use std::time::Duration;
/// # use heartline::RetryPolicy;
/// // Runs after 0 s, 5 s, 15 s and 35 s, each wait longer by a random part of itself.
/// let policy = RetryPolicy::new().attempts(4).exponential(Duration::from_secs(5), 2.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[must_use]
pub struct RetryPolicy {
    attempts: u32,
    backoff: Backoff,
    #[serde(rename = "max_delay_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    max_delay: Option<Duration>,
    jitter: Jitter,
    /// Borrowed, since a `const fn` cannot own the codes. A dispatch sends them separately.
    #[serde(skip)]
    on: Option<&'static [&'static str]>,
}

/// How the delay depends on the number of failed runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Backoff {
    Fixed {
        #[serde(rename = "delay_ms", with = "ms")]
        delay: Duration,
    },
    Exponential {
        #[serde(rename = "first_ms", with = "ms")]
        first: Duration,
        factor: f32,
    },
}

/// Whether a delay gets a random part, so that jobs that failed together do not all return together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// The delay is exact.
    None,
    /// Adds a random time between 0 and the delay itself: 10 s becomes 10 s to 20 s.
    #[default]
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::new()
    }
}

impl RetryPolicy {
    /// One run, so no retry. With more attempts, the delays are 1 s, 2 s, 4 s and so on up to 10 min, with jitter.
    pub const fn new() -> RetryPolicy {
        RetryPolicy {
            attempts: 1,
            backoff: Backoff::Exponential { first: Duration::from_secs(1), factor: 2.0 },
            max_delay: None,
            jitter: Jitter::Full,
            on: None,
        }
    }

    /// After how many failed runs the job fails. 1 to 1,000,000. Defaults to 1: no retry.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Waits the same time after each failed run. At most 10 years; `max_delay` does not apply.
    pub const fn fixed(mut self, delay: Duration) -> Self {
        self.backoff = Backoff::Fixed { delay };
        self
    }

    /// Waits `first` after the first failed run, and `factor` times longer after each further one.
    ///
    /// `factor` is finite and at least 1, `first` at most 10 years. The delay stops growing after 10,000 failed runs. Defaults to 1 s and
    /// 2.
    pub const fn exponential(mut self, first: Duration, factor: f32) -> Self {
        self.backoff = Backoff::Exponential { first, factor };
        self
    }

    /// The longest delay of a growing backoff, before jitter. With [`Jitter::Full`] a job may wait up to twice as long.
    ///
    /// At least the first delay and at most 10 years. Defaults to 10 min, or to the first delay if that is longer.
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = Some(max_delay);
        self
    }

    /// Whether delays get a random part. Defaults to [`Jitter::Full`].
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Which failures are retried, by their code: `handler_error`, `panic`, `timeout`, and the codes of your own errors
    /// ([`JobError::with_code`](crate::JobError::with_code)). At least one code. Defaults to all.
    ///
    /// A run that fails with another code fails its job at once, even if attempts are left or [`retry_after`](crate::JobError::retry_after)
    /// gives a delay. For jobs whose worker died, see [`OnCrash`](crate::OnCrash).
    ///
    /// ```
    /// # use heartline::RetryPolicy;
    /// let policy = RetryPolicy::new().attempts(5).on(&["timeout", "busy"]);
    /// ```
    pub const fn on(mut self, codes: &'static [&'static str]) -> Self {
        self.on = Some(codes);
        self
    }

    /// The codes that are retried; `None`: all.
    pub(crate) fn codes(&self) -> Option<Vec<String>> {
        self.on.map(|codes| codes.iter().map(|code| (*code).to_owned()).collect())
    }

    /// How many runs a job gets in total.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether another run may follow after this many failed ones.
    pub(crate) fn attempts_left(&self, failed_attempts: u32) -> bool {
        failed_attempts < self.attempts
    }

    /// How long a job waits after its `failed_attempts`th failed run; 0 counts as 1.
    ///
    /// Saturates at 20 years: a delay of 10 years, and as much jitter.
    pub(crate) fn delay(&self, failed_attempts: u32) -> Duration {
        let delay = match self.backoff {
            Backoff::Fixed { delay } => whole_ms(delay),
            Backoff::Exponential { first, factor } => self.grown(first, factor, failed_attempts),
        };
        let mut one = ConstantBuilder::new().with_delay(delay);
        if self.jitter == Jitter::Full {
            one = one.with_jitter();
        }
        one.build().next().unwrap_or(delay)
    }

    fn grown(&self, first: Duration, factor: f32, failed_attempts: u32) -> Duration {
        let max_delay = whole_ms(self.max_delay.unwrap_or(first.max(DEFAULT_MAX_DELAY)));
        let first = whole_ms(first).min(max_delay);
        let delays = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_factor(factor)
            .with_max_delay(max_delay)
            .without_max_times()
            .build();
        let mut delay = first;
        for next in delays.take(failed_attempts.min(GROWTH_STEPS) as usize).skip(1) {
            // At the longest delay, or with a factor of 1, the delay no longer changes.
            if next == delay {
                break;
            }
            delay = next;
        }
        // backon multiplies in f32: 0.7 s doubled is 1.399999976 s, and a large delay times 1 may shrink.
        let nearest = delay.saturating_add(Duration::from_micros(500)).as_millis();
        Duration::from_millis(u64::try_from(nearest).unwrap_or(u64::MAX)).clamp(first, max_delay)
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        faults.attempts("retry.attempts", self.attempts);
        if let Some(codes) = self.on {
            faults.retried_codes("retry.on", codes);
        }
        match self.backoff {
            Backoff::Fixed { delay } => faults.any_time("retry.fixed", delay),
            Backoff::Exponential { first, factor } => {
                faults.any_time("retry.exponential.first", first);
                faults.factor("retry.exponential.factor", factor);
                if let Some(max_delay) = self.max_delay {
                    faults.max_delay("retry.max_delay", max_delay, first);
                }
            }
        }
    }
}

/// A delay as a job's overrides store it. The bound is needed, since the constant backoff of backon adds jitter without saturating.
fn whole_ms(delay: Duration) -> Duration {
    Duration::from_millis(to_ms(delay.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn exact() -> RetryPolicy {
        RetryPolicy::new().attempts(5).jitter(Jitter::None)
    }

    #[test]
    fn a_new_policy_runs_once() {
        assert!(RetryPolicy::new().attempts_left(0));
        assert!(!RetryPolicy::new().attempts_left(1));
        assert!(RetryPolicy::new().attempts(3).attempts_left(2));
        assert!(!RetryPolicy::new().attempts(3).attempts_left(u32::MAX));
        assert_eq!(RetryPolicy::default().max_attempts(), 1);
    }

    #[test]
    fn the_default_backoff_doubles_to_ten_minutes() {
        let delays: Vec<u64> = (0..=12).map(|n| exact().delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        assert_eq!(exact().delay(u32::MAX), seconds(600));
    }

    #[test]
    fn delays_are_whole_milliseconds() {
        let policy = exact().exponential(Duration::from_millis(700), 2.0);
        assert_eq!(policy.delay(2), Duration::from_millis(1400));
        let policy = exact().fixed(Duration::from_nanos(1));
        assert_eq!(policy.delay(1), Duration::from_millis(1));
    }

    #[test]
    fn a_fixed_delay_ignores_the_longest_delay() {
        let policy = exact().fixed(seconds(3600)).max_delay(seconds(1));
        assert_eq!(policy.delay(1), seconds(3600));
        assert_eq!(policy.delay(9), seconds(3600));
    }

    #[test]
    fn a_first_delay_over_the_default_longest_is_kept() {
        let policy = exact().exponential(seconds(3600), 2.0);
        assert_eq!((policy.delay(1), policy.delay(5)), (seconds(3600), seconds(3600)));
        let policy = policy.max_delay(seconds(7000));
        assert_eq!((policy.delay(2), policy.delay(5)), (seconds(7000), seconds(7000)));
    }

    #[test]
    fn a_tiny_factor_stops_growing_after_many_steps() {
        let policy = exact().exponential(seconds(1), 1.0001);
        assert_eq!(policy.delay(u32::MAX), policy.delay(GROWTH_STEPS));
        assert!(policy.delay(u32::MAX) > seconds(2));
    }

    #[test]
    fn jitter_adds_up_to_the_delay() {
        let policy = RetryPolicy::new().fixed(seconds(10));
        let delays: Vec<Duration> = (0..200).map(|_| policy.delay(1)).collect();
        assert!(delays.iter().all(|d| (seconds(10)..=seconds(20)).contains(d)));
        assert!(delays.iter().any(|d| *d < seconds(14)) && delays.iter().any(|d| *d > seconds(16)));
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, n)| Duration::new(s, n)),
            (0..100_000u64).prop_map(Duration::from_millis),
            (0..2_000u64).prop_map(Duration::from_nanos),
            Just(Duration::MAX),
        ]
    }

    fn any_factor() -> impl Strategy<Value = f32> {
        let odd = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MAX, 1.0, 1.000_000_1];
        prop_oneof![any::<f32>(), 0f32..4f32, proptest::sample::select(odd)]
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let backoff = prop_oneof![
            any_duration().prop_map(|delay| Backoff::Fixed { delay }),
            (any_duration(), any_factor()).prop_map(|(first, factor)| Backoff::Exponential { first, factor }),
        ];
        let jitter = proptest::sample::select(vec![Jitter::None, Jitter::Full]);
        let max_delay = proptest::option::of(any_duration());
        (any::<u32>(), backoff, max_delay, jitter).prop_map(|(attempts, backoff, max_delay, jitter)| RetryPolicy {
            attempts,
            backoff,
            max_delay,
            jitter,
            on: None,
        })
    }

    #[test]
    fn no_input_panics_or_leaves_the_bounds() {
        proptest!(|(policy in any_policy(), n in prop_oneof![any::<u32>(), 0..100u32])| {
            let delay = policy.delay(n);
            prop_assert!(delay <= LONGEST * 2);
            prop_assert_eq!(policy.attempts_left(n), n < policy.attempts);
            let mut faults = Faults::default();
            policy.check(&mut faults);
            let _ = faults.finish();
        });
    }

    #[test]
    fn exact_delays_never_shrink() {
        proptest!(|(first in any_duration(), factor in 1f32..8f32, n in 1..200u32)| {
            let policy = exact().exponential(first, factor);
            prop_assert!(policy.delay(n) <= policy.delay(n + 1));
        });
    }

    #[test]
    fn a_policy_reads_back_from_json() {
        proptest!(|(attempts: u32, first in 0..u64::MAX, factor in 1f32..1e9f32, max in proptest::option::of(0..u64::MAX))| {
            let mut policy = exact().attempts(attempts).exponential(Duration::from_millis(first), factor);
            policy.max_delay = max.map(Duration::from_millis);
            let json = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&json).unwrap(), policy);
        });
    }

    #[test]
    fn the_wire_form_is_fixed() {
        let json = |policy: RetryPolicy| serde_json::to_string(&policy).unwrap();
        assert_eq!(
            json(exact().max_delay(seconds(60))),
            r#"{"attempts":5,"backoff":{"exponential":{"first_ms":1000,"factor":2.0}},"max_delay_ms":60000,"jitter":"none"}"#
        );
        assert_eq!(
            json(RetryPolicy::new().fixed(seconds(1))),
            r#"{"attempts":1,"backoff":{"fixed":{"delay_ms":1000}},"jitter":"full"}"#
        );
        assert_eq!(serde_json::from_str::<RetryPolicy>("{}").unwrap(), RetryPolicy::new());
    }
}
