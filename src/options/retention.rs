//! How long terminal jobs are kept.

use std::time::Duration;

use super::builder::options;
use crate::config_error::Faults;
use crate::unix_time::to_ms;

/// Largest count that a Lua number holds exactly; no set is that large.
const LARGEST_COUNT: u64 = 1 << 53;

options! {
    /// How long completed, failed and cancelled jobs are kept.
    ///
    /// A limit that is not set here comes from the app's defaults, then from the crate's. The crate keeps completed jobs
    /// for a day and at most 100,000 of them, failed and cancelled jobs for 30 days. No job is removed in its first 60 s,
    /// unless [`Retention::remove_at_once`] is set.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartline::{Retention, RetentionLimit};
    /// let hour = Duration::from_secs(3600);
    /// let retention = Retention::new()
    ///     .completed(RetentionLimit::age(hour).and_count(1_000))
    ///     .failed(RetentionLimit::forever());
    /// ```
    pub struct Retention;

    /// How long completed jobs and their results are kept. Defaults to 1 day or 100,000 jobs.
    pub fn completed(mut self, limit: RetentionLimit);

    /// How long failed jobs are kept. Defaults to 30 days.
    pub fn failed(mut self, limit: RetentionLimit);

    /// How long cancelled jobs are kept. Defaults to 30 days.
    pub fn cancelled(mut self, limit: RetentionLimit);
}

impl Retention {
    /// Removes terminal jobs at once, with their results: the cheapest choice.
    ///
    /// How such a job ended cannot be read later; only callers that wait for its event learn it. Its id is free again
    /// as soon as it has ended. So if a dispatch is repeated after a lost reply, the job may run twice. A limit that is
    /// set afterwards keeps one kind: `Retention::remove_at_once().failed(..)`.
    pub const fn remove_at_once() -> Retention {
        let at_once = Some(RetentionLimit { max_age: None, max_count: None, remove_at_once: true });
        Retention { completed: at_once, failed: at_once, cancelled: at_once }
    }

    pub(super) fn resolve(&self, faults: &mut Faults) -> ResolvedRetention {
        const DAY: Duration = Duration::from_secs(86_400);
        let mut limit = |field: &str, set: Option<RetentionLimit>, default: RetentionLimit| {
            let limit = set.unwrap_or(default);
            limit.check(field, faults);
            LimitMs::from(limit)
        };
        let month = RetentionLimit::age(30 * DAY);
        ResolvedRetention {
            completed: limit("retention.completed", self.completed, RetentionLimit::age(DAY).and_count(100_000)),
            failed: limit("retention.failed", self.failed, month),
            cancelled: limit("retention.cancelled", self.cancelled, month),
        }
    }
}

/// A bound on the jobs of one terminal state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetentionLimit {
    max_age: Option<Duration>,
    max_count: Option<u64>,
    remove_at_once: bool,
}

impl RetentionLimit {
    /// Keeps a job this long after its end. 60 s to 10 years.
    pub const fn age(age: Duration) -> RetentionLimit {
        RetentionLimit { max_age: Some(age), max_count: None, remove_at_once: false }
    }

    /// Keeps this many of the jobs that ended last, and every job that ended in the last 60 s.
    pub const fn count(count: u64) -> RetentionLimit {
        RetentionLimit::forever().and_count(count)
    }

    /// Adds a bound on the number. A job is removed as soon as it exceeds either bound.
    pub const fn and_count(mut self, count: u64) -> RetentionLimit {
        self.max_count = Some(count);
        self
    }

    /// Checks that the age is at least 60 s and at most 10 years.
    pub(crate) fn check(&self, field: &str, faults: &mut Faults) {
        if let Some(age) = self.max_age {
            faults.retention(field, age);
        }
    }

    /// Keeps every job. Memory grows without bound: remove jobs yourself.
    pub const fn forever() -> RetentionLimit {
        RetentionLimit { max_age: None, max_count: None, remove_at_once: false }
    }
}

/// The retention in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedRetention {
    pub(crate) completed: LimitMs,
    pub(crate) failed: LimitMs,
    pub(crate) cancelled: LimitMs,
}

/// One limit in the form that the scripts take. Neither bound removes a job younger than [`MIN_AGE_MS`](crate::limits::MIN_AGE_MS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitMs {
    /// `None`: any age.
    pub(crate) max_age_ms: Option<u64>,
    /// `None`: any number.
    pub(crate) max_count: Option<u64>,
    /// The call that ends the job removes it; the other two fields are then `None`.
    pub(crate) remove_at_once: bool,
}

impl From<RetentionLimit> for LimitMs {
    fn from(limit: RetentionLimit) -> Self {
        LimitMs {
            max_age_ms: limit.max_age.map(to_ms),
            max_count: limit.max_count.map(|count| count.min(LARGEST_COUNT)),
            remove_at_once: limit.remove_at_once,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(retention: &Retention) -> ResolvedRetention {
        let mut faults = Faults::default();
        let resolved = retention.resolve(&mut faults);
        faults.finish().unwrap();
        resolved
    }

    fn keeps(max_age_ms: Option<u64>, max_count: Option<u64>) -> LimitMs {
        LimitMs { max_age_ms, max_count, remove_at_once: false }
    }

    #[test]
    fn unset_means_the_crate_defaults() {
        let resolved = resolve(&Retention::new());
        assert_eq!(resolved.completed, keeps(Some(86_400_000), Some(100_000)));
        assert_eq!(resolved.failed, keeps(Some(30 * 86_400_000), None));
        assert_eq!(resolved.cancelled, resolved.failed);
    }

    #[test]
    fn remove_at_once_removes_all_and_can_exclude_one_kind() {
        let resolved = resolve(&Retention::remove_at_once().failed(RetentionLimit::count(5)));
        assert!(resolved.completed.remove_at_once && resolved.cancelled.remove_at_once);
        assert_eq!(resolved.failed, keeps(None, Some(5)));
    }

    #[test]
    fn ages_below_a_minute_are_a_fault_and_counts_are_bounded() {
        let retention = Retention::new()
            .completed(RetentionLimit::age(Duration::from_secs(60)))
            .failed(RetentionLimit::forever())
            .cancelled(RetentionLimit::count(u64::MAX));
        let resolved = resolve(&retention);
        assert_eq!(resolved.completed, keeps(Some(60_000), None));
        assert_eq!(resolved.failed, keeps(None, None));
        assert_eq!(resolved.cancelled, keeps(None, Some(1 << 53)));
        let mut faults = Faults::default();
        let short = RetentionLimit::age(Duration::from_millis(59_999));
        Retention::new().completed(short).failed(short).resolve(&mut faults);
        assert_eq!(faults.finish().unwrap_err().len(), 2);
    }

    #[test]
    fn task_and_app_are_merged_field_by_field() {
        let task = Retention::new().failed(RetentionLimit::forever());
        let app = Retention::remove_at_once();
        let resolved = resolve(&task.or(&app));
        assert!(resolved.completed.remove_at_once);
        assert_eq!(resolved.failed, keeps(None, None));
    }
}
