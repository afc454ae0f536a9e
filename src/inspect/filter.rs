//! Filters for the jobs of a task.

use std::time::Duration;

use serde::Serialize;

use crate::job::state::JobState;
use crate::unix_time::as_ms_where_known;

/// Selects jobs of a task by state, age and failure, for [`Inspector::jobs`](crate::Inspector::jobs) and the acts.
///
/// ```
/// # use std::time::Duration;
/// # use heartline::{JobFilter, JobState};
/// let old_timeouts = JobFilter::new(JobState::Failed).code("timeout").older_than(Duration::from_secs(600));
/// ```
///
/// The age of a job counts from its end if it is terminal, from its due time if it is delayed, and from its claim if it is held. The
/// age of a waiting job counts from when it was enqueued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[must_use]
pub struct JobFilter {
    pub(super) state: JobState,
    pub(super) code: Option<String>,
    pub(super) text: Option<String>,
    #[serde(rename = "older_than_ms", serialize_with = "as_ms_where_known")]
    pub(super) older_than: Option<Duration>,
    #[serde(rename = "younger_than_ms", serialize_with = "as_ms_where_known")]
    pub(super) younger_than: Option<Duration>,
    pub(super) oldest_first: bool,
}

impl JobFilter {
    /// Every job in this state. Terminal jobs come latest end first, delayed ones latest due time first.
    pub const fn new(state: JobState) -> JobFilter {
        JobFilter { state, code: None, text: None, older_than: None, younger_than: None, oldest_first: false }
    }

    /// Only jobs whose last failure has this code. An empty code is refused with [`Error::Config`](crate::Error::Config).
    pub fn code(mut self, code: impl Into<String>) -> JobFilter {
        self.code = Some(code.into());
        self
    }

    /// Only jobs whose last failure has this text in its message, case-sensitive. An empty text is refused with
    /// [`Error::Config`](crate::Error::Config).
    pub fn message_contains(mut self, text: impl Into<String>) -> JobFilter {
        self.text = Some(text.into());
        self
    }

    /// Only jobs older than this. Delayed jobs match if they have been due for longer than this.
    pub const fn older_than(mut self, age: Duration) -> JobFilter {
        self.older_than = Some(age);
        self
    }

    /// Only jobs of at most this age.
    pub const fn younger_than(mut self, age: Duration) -> JobFilter {
        self.younger_than = Some(age);
        self
    }

    /// Lists terminal and delayed jobs oldest first, delayed ones by due time. Waiting jobs always come in the order in which they
    /// are claimed. Held jobs have no order.
    pub const fn oldest_first(mut self) -> JobFilter {
        self.oldest_first = true;
        self
    }

    /// Whether Redis keeps the jobs of the state sorted by time.
    pub(super) const fn is_ordered(&self) -> bool {
        !matches!(self.state, JobState::Waiting | JobState::Claimed | JobState::Running | JobState::Finalizing)
    }

    /// Whether each job must be read to decide whether it matches.
    pub(super) fn looks_inside(&self) -> bool {
        let by_age = self.older_than.is_some() || self.younger_than.is_some();
        self.code.is_some() || self.text.is_some() || by_age && !self.is_ordered()
    }

    /// The earliest and latest time of matching jobs, ms, at the time `now_ms`.
    pub(super) fn times(&self, now_ms: u64) -> (Option<u64>, Option<u64>) {
        let before = |age: Duration| now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        (self.younger_than.map(before), self.older_than.map(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_time_and_only_what_redis_orders_needs_no_look_inside() {
        let day = Duration::from_secs(86_400);
        let failed = JobFilter::new(JobState::Failed).older_than(day);
        assert_eq!(failed.times(100_000_000), (None, Some(13_600_000)));
        assert!(!failed.looks_inside() && failed.clone().code("timeout").looks_inside());
        assert!(JobFilter::new(JobState::Waiting).younger_than(day).looks_inside());
        assert!(!JobFilter::new(JobState::Waiting).looks_inside());
    }
}
