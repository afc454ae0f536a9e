//! What can be set for a task, where it may be set, and what follows when it is not.
//!
//! Precedence, field by field: dispatch, then task, then the app's defaults, then the crate's. The interval and
//! the heartbeat mode cannot be set for a single job, since a task has one epoch.

mod retention;
mod retry;
mod stall;
pub(crate) mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, ConfigErrors, Error};
use validate::{Faults, LONGEST, PAYLOAD_LIMIT_MAX};

pub(crate) use retention::{MIN_AGE_MS, ResolvedRetention};
pub use retention::{Retention, RetentionLimit};
pub use retry::{Jitter, RetryPolicy};
pub use stall::{Heartbeat, OnRisk, StallOptions};

/// Longest cancel grace: a cancelled handler holds its slot for as long.
const CANCEL_GRACE_MAX: Duration = Duration::from_secs(3600);

/// The settings of a task, or, given to the app, the defaults of all its tasks.
///
/// What is not set here comes from the app's defaults, then from the crate's. Everything is checked when the task
/// is declared, and all faults are reported together.
///
/// ```
/// # use std::time::Duration;
/// # use heartline::{RetryPolicy, StallOptions, TaskOptions};
/// let options = TaskOptions::new()
///     .concurrency(16)
///     .retry(RetryPolicy::new().attempts(3))
///     .stall(StallOptions::new().interval(Duration::from_secs(15)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct TaskOptions {
    stall: Option<StallOptions>,
    retry: Option<RetryPolicy>,
    timeout: Option<Duration>,
    concurrency: Option<usize>,
    priority: Option<Priority>,
    shutdown_grace: Option<Duration>,
    cancel_grace: Option<Duration>,
    retention: Option<Retention>,
    payload_limit: Option<usize>,
    events: Option<EventMode>,
    undecodable_for: Option<Duration>,
}

impl TaskOptions {
    /// Options with nothing set.
    pub const fn new() -> TaskOptions {
        TaskOptions {
            stall: None,
            retry: None,
            timeout: None,
            concurrency: None,
            priority: None,
            shutdown_grace: None,
            cancel_grace: None,
            retention: None,
            payload_limit: None,
            events: None,
            undecodable_for: None,
        }
    }

    /// When a job counts as stalled and what follows. Merged with the app's field by field.
    pub const fn stall(mut self, stall: StallOptions) -> Self {
        self.stall = Some(stall);
        self
    }

    /// How many runs a job gets and how long it waits in between. Replaces the app's policy as a whole; a
    /// dispatch can give its own.
    ///
    /// Defaults to one run: no retry.
    pub const fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long one run may take before it is cancelled and counts as failed, with the code `timeout`.
    ///
    /// More than 0, at most 10 years. A dispatch can set its own; a timeout set for the app cannot be lifted for a
    /// task, only made longer. Code that does not yield cannot be stopped. Defaults to none.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many jobs of the task one worker process runs at a time. 1 to 100,000. Defaults to 10.
    pub const fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// The priority of jobs that are dispatched without one. Defaults to [`Priority::Normal`].
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How long a shutdown waits for running jobs before it cancels them and hands them back, with no stall
    /// counted. 0 cancels at once; at most 10 years. Defaults to 30 s.
    pub const fn shutdown_grace(mut self, shutdown_grace: Duration) -> Self {
        self.shutdown_grace = Some(shutdown_grace);
        self
    }

    /// How long a handler that was cancelled, or lost its job, may wind down before its future is dropped. A run past its
    /// `timeout` is dropped at once.
    ///
    /// 0 drops at once; at most 1 h. A dispatch can set its own. Defaults to 5 s.
    pub const fn cancel_grace(mut self, cancel_grace: Duration) -> Self {
        self.cancel_grace = Some(cancel_grace);
        self
    }

    /// How long terminal jobs are kept. Merged with the app's field by field.
    pub const fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Largest encoded payload that a dispatch takes, in bytes. 1 byte to 511 MiB. Defaults to 1 MiB.
    pub const fn payload_limit(mut self, bytes: usize) -> Self {
        self.payload_limit = Some(bytes);
        self
    }

    /// Whether the task's transitions are written to its event stream. Defaults to [`EventMode::On`].
    pub const fn events(mut self, events: EventMode) -> Self {
        self.events = Some(events);
        self
    }

    /// How long a job is put off whose payload is no input of the handler, before it fails with the code `codec`. A producer may
    /// have been deployed before its workers: until these follow, the job is tried again after 10 s, and then after ever longer
    /// pauses of up to 10 min, which uses no attempt.
    ///
    /// 0 fails it at once; at most 10 years. Defaults to 24 h.
    pub const fn undecodable_for(mut self, time: Duration) -> Self {
        self.undecodable_for = Some(time);
        self
    }

    /// The settings in force: the task's own, else the app's, else the crate's.
    ///
    /// A default of the app that the task replaces is not looked at; `TaskOptions::new().resolve(&defaults)`
    /// checks the app's own.
    ///
    /// # Errors
    /// Every rule that is broken, at once.
    pub(crate) fn resolve(&self, app_defaults: &TaskOptions) -> Result<Resolved, ConfigErrors> {
        let mut faults = Faults::default();

        let own_stall = self.stall.clone().unwrap_or_default();
        let max_count_set = own_stall.sets_max_count();
        let (interval, max_count, heartbeat, on_risk) = match &app_defaults.stall {
            Some(app) => own_stall.or(app),
            None => own_stall,
        }
        .resolve(&mut faults);

        let retry = self.retry.as_ref().or(app_defaults.retry.as_ref());
        let retry = retry.cloned().unwrap_or_default();
        retry.check(&mut faults);

        let timeout = self.timeout.or(app_defaults.timeout);
        if let Some(timeout) = timeout {
            faults.timeout(timeout);
        }
        let concurrency = self.concurrency.or(app_defaults.concurrency).unwrap_or(10);
        faults.number("concurrency", concurrency as u64, 1, 100_000);
        let shutdown_grace = self.shutdown_grace.or(app_defaults.shutdown_grace);
        let shutdown_grace = shutdown_grace.unwrap_or(Duration::from_secs(30));
        faults.at_most("shutdown_grace", shutdown_grace, LONGEST);
        let cancel_grace = self.cancel_grace.or(app_defaults.cancel_grace);
        let cancel_grace = cancel_grace.unwrap_or(Duration::from_secs(5));
        faults.at_most("cancel_grace", cancel_grace, CANCEL_GRACE_MAX);

        let own_retention = self.retention.clone().unwrap_or_default();
        let retention = match &app_defaults.retention {
            Some(app) => own_retention.or(app),
            None => own_retention,
        }
        .resolve(&mut faults);

        let payload_limit = self.payload_limit.or(app_defaults.payload_limit);
        let payload_limit = payload_limit.unwrap_or(1024 * 1024);
        faults.number("payload_limit", payload_limit as u64, 1, PAYLOAD_LIMIT_MAX as u64);

        let undecodable_for = self.undecodable_for.or(app_defaults.undecodable_for);
        let undecodable_for = undecodable_for.unwrap_or(Duration::from_secs(24 * 3600));
        faults.at_most("undecodable_for", undecodable_for, LONGEST);

        faults.finish()?;
        Ok(Resolved {
            interval,
            max_count,
            max_count_set,
            heartbeat,
            on_risk,
            retry,
            timeout,
            concurrency,
            priority: self.priority.or(app_defaults.priority).unwrap_or_default(),
            shutdown_grace,
            cancel_grace,
            retention,
            payload_limit,
            events: self.events.or(app_defaults.events).unwrap_or_default(),
            undecodable_for,
        })
    }
}

/// Whether a task writes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventMode {
    /// Transitions are written to the event stream, those of one call in one entry; about 10,000 entries are kept.
    #[default]
    On,
    /// No entries, which saves some of Redis's time; stalls are written all the same. Waiting for a result then
    /// rests on reading the state, after a second and then after ever longer pauses of up to 5 s.
    Off,
}

impl EventMode {
    /// The mode as the task's settings in Redis have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            EventMode::On => "on",
            EventMode::Off => "off",
        }
    }
}

/// Which of the task's waiting jobs run first.
///
/// Jobs of one priority run in the order of dispatch; those that stalled or were requeued go to the front, the ones of a
/// dead worker in no order among themselves. A steady flow of high ones keeps the others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// Between the two.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

impl Priority {
    /// The name: `high`, `normal` or `low`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = Error;

    /// Reads the name that [`Priority::as_str`] gives.
    ///
    /// # Errors
    /// [`Error::Config`] for any other text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Priority::High, Priority::Normal, Priority::Low]
            .into_iter()
            .find(|priority| priority.as_str() == text)
            .ok_or_else(|| {
                let value = format!("{text:?}");
                let rule = "must be the name of a priority";
                let fault = ConfigError::new("priority", value, rule, "use high, normal or low");
                ConfigErrors::from(fault).into()
            })
    }
}

/// The settings of a task with every gap filled and every rule checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) interval: Duration,
    pub(crate) max_count: u32,
    /// Whether the task itself, or the dispatch, set `max_count`; a default of the app does not count.
    pub(crate) max_count_set: bool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) on_risk: OnRisk,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: usize,
    pub(crate) priority: Priority,
    pub(crate) shutdown_grace: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) retention: ResolvedRetention,
    /// Bytes.
    pub(crate) payload_limit: usize,
    pub(crate) events: EventMode,
    pub(crate) undecodable_for: Duration,
}

/// The first pause of a job whose payload cannot be read; the next ones are twice as long each.
const UNDECODABLE_PAUSE: Duration = Duration::from_secs(10);
/// The longest of them.
const UNDECODABLE_PAUSE_MAX: Duration = Duration::from_secs(600);

impl Resolved {
    /// How long a job is put off whose payload cannot be read, and was put off so often before; `None` when its time is over.
    pub(crate) fn undecodable_pause(&self, before: u32) -> Option<Duration> {
        let pause = |n: u32| (UNDECODABLE_PAUSE * (1 << n.min(10))).min(UNDECODABLE_PAUSE_MAX);
        // The first ones differ, all others are the longest.
        let first: Duration = (0..before.min(10)).map(pause).sum();
        let waited = first.saturating_add(UNDECODABLE_PAUSE_MAX.saturating_mul(before.saturating_sub(10)));
        let left = self.undecodable_for.saturating_sub(waited);
        (!left.is_zero()).then(|| pause(before).min(left))
    }

    /// The settings for one job.
    pub(crate) fn with(&self, overrides: &Overrides) -> Resolved {
        let mut own = self.clone();
        if let Some(max_count) = overrides.max_count {
            own.max_count = max_count;
            own.max_count_set = true;
        }
        if let Some(retry) = &overrides.retry {
            own.retry = retry.clone();
        }
        if let Some(attempts) = overrides.attempts {
            own.retry = own.retry.attempts(attempts);
        }
        own.timeout = overrides.timeout.or(own.timeout);
        own.on_risk = overrides.on_risk.unwrap_or(own.on_risk);
        own.cancel_grace = overrides.cancel_grace.unwrap_or(own.cancel_grace);
        own
    }
}

/// What a dispatch sets for its own job. It rides with the job as JSON, so that every worker obeys it.
///
/// Durations are rounded up to whole milliseconds on the way: a timeout above 0 stays above 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Overrides {
    /// How long the job was delayed. It is the first field: `lua/lib/claim.lua` reads it there, for the `started` event.
    #[serde(rename = "delay_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Goes before the count of `retry`, and before that of the worker's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    #[serde(rename = "timeout_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_risk: Option<OnRisk>,
    #[serde(rename = "cancel_grace_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<Duration>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
}

/// What travels with a job beside its payload.
pub(crate) type Headers = BTreeMap<String, String>;

/// The most bytes that the headers of a job have together.
const HEADERS_LIMIT: usize = 4096;

impl Overrides {
    /// Whether nothing is set, so that nothing needs to be stored.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// Every rule that is broken, at once.
    pub(crate) fn validate(&self) -> Result<(), ConfigErrors> {
        let mut faults = Faults::default();
        if let Some(delay) = self.delay {
            faults.at_most("delay", delay, LONGEST);
        }
        if let Some(retry) = &self.retry {
            retry.check(&mut faults);
        }
        if let Some(attempts) = self.attempts {
            faults.number("attempts", u64::from(attempts), 1, retry::MOST_ATTEMPTS);
        }
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > HEADERS_LIMIT {
            let rule = format!("must have at most {HEADERS_LIMIT} bytes together, names and values");
            faults.push(ConfigError::new(
                "headers",
                format!("{bytes} bytes"),
                rule,
                "put what is large into the payload",
            ));
        }
        if let Some(timeout) = self.timeout {
            faults.timeout(timeout);
        }
        if let Some(cancel_grace) = self.cancel_grace {
            faults.at_most("cancel_grace", cancel_grace, CANCEL_GRACE_MAX);
        }
        faults.finish()
    }
}

/// Whole milliseconds, rounded up so that a time above 0 stays above 0, and saturating.
pub(crate) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A duration as integer milliseconds.
mod ms {
    use super::{Duration, to_ms};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(to_ms(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same for a duration that may be unset.
mod opt_ms {
    use super::{Duration, to_ms};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(to_ms).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let value = Option::<u64>::deserialize(deserializer)?;
        Ok(value.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn crate_defaults() -> Resolved {
        TaskOptions::new().resolve(&TaskOptions::new()).unwrap()
    }

    #[test]
    fn the_crate_defaults_are_those_of_the_design() {
        let resolved = crate_defaults();
        assert_eq!(resolved.interval, seconds(30));
        assert_eq!((resolved.max_count, resolved.max_count_set), (1, false));
        assert_eq!(resolved.heartbeat, Heartbeat::Automatic);
        assert_eq!(resolved.on_risk, OnRisk::Continue);
        assert_eq!(resolved.retry, RetryPolicy::new());
        assert_eq!(resolved.timeout, None);
        assert_eq!(resolved.concurrency, 10);
        assert_eq!(resolved.priority, Priority::Normal);
        assert_eq!(resolved.shutdown_grace, seconds(30));
        assert_eq!(resolved.cancel_grace, seconds(5));
        assert_eq!(resolved.payload_limit, 1_048_576);
        assert_eq!(resolved.events, EventMode::On);
        assert_eq!(resolved.retention.completed.max_count, Some(100_000));
    }

    #[test]
    fn task_goes_before_app_field_by_field() {
        let app = TaskOptions::new()
            .stall(StallOptions::new().interval(seconds(15)).max_count(2).on_risk(OnRisk::Cancel))
            .retention(Retention::remove_at_once())
            .concurrency(3)
            .timeout(seconds(9))
            .events(EventMode::Off)
            .priority(Priority::Low);
        let task = TaskOptions::new()
            .stall(StallOptions::new().max_count(5).heartbeat(Heartbeat::Manual))
            .retention(Retention::new().failed(RetentionLimit::forever()))
            .concurrency(4)
            .shutdown_grace(seconds(1))
            .cancel_grace(seconds(2))
            .payload_limit(7)
            .retry(RetryPolicy::new().attempts(9));
        let resolved = task.resolve(&app).unwrap();
        assert_eq!(resolved.interval, seconds(15));
        assert_eq!((resolved.max_count, resolved.max_count_set), (5, true));
        assert_eq!(resolved.heartbeat, Heartbeat::Manual);
        assert_eq!(resolved.on_risk, OnRisk::Cancel);
        assert!(resolved.retention.completed.remove_at_once);
        assert!(!resolved.retention.failed.remove_at_once);
        assert_eq!(resolved.concurrency, 4);
        assert_eq!(resolved.timeout, Some(seconds(9)));
        assert_eq!((resolved.shutdown_grace, resolved.cancel_grace), (seconds(1), seconds(2)));
        assert_eq!((resolved.events, resolved.priority), (EventMode::Off, Priority::Low));
        assert_eq!(resolved.payload_limit, 7);
        assert_eq!(resolved.retry.max_attempts(), 9);

        let inherited = TaskOptions::new().resolve(&app).unwrap();
        assert_eq!((inherited.max_count, inherited.max_count_set), (2, false));
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let options = TaskOptions::new()
            .stall(StallOptions::new().interval(Duration::from_millis(10)))
            .retry(RetryPolicy::new().attempts(0).exponential(Duration::MAX, f32::NAN).max_delay(seconds(1)))
            .timeout(Duration::ZERO)
            .concurrency(0)
            .shutdown_grace(Duration::MAX)
            .cancel_grace(seconds(3601))
            .retention(Retention::new().failed(RetentionLimit::age(Duration::MAX)))
            .payload_limit(usize::MAX);
        let faults = options.resolve(&TaskOptions::new()).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "stall.interval",
                "retry.attempts",
                "retry.exponential.first",
                "retry.exponential.factor",
                "retry.max_delay",
                "timeout",
                "concurrency",
                "shutdown_grace",
                "cancel_grace",
                "retention.failed",
                "payload_limit",
            ]
        );
        assert_eq!(faults.to_string().lines().count(), faults.len());
    }

    #[test]
    fn a_fault_of_the_app_is_found_unless_the_task_replaces_it() {
        let app = TaskOptions::new().concurrency(0);
        assert!(TaskOptions::new().resolve(&app).is_err());
        assert!(TaskOptions::new().concurrency(1).resolve(&app).is_ok());
    }

    #[test]
    fn overrides_are_compact_json() {
        assert!(Overrides::default().is_empty());
        assert_eq!(serde_json::to_string(&Overrides::default()).unwrap(), "{}");
        let overrides = Overrides {
            delay: Some(seconds(5)),
            max_count: Some(0),
            retry: None,
            timeout: Some(Duration::from_micros(1)),
            on_risk: Some(OnRisk::Cancel),
            cancel_grace: Some(seconds(2)),
            attempts: Some(3),
            headers: Headers::from([("k".into(), "v".into())]),
        };
        assert!(!overrides.is_empty());
        assert_eq!(
            serde_json::to_string(&overrides).unwrap(),
            r#"{"delay_ms":5000,"max_count":0,"attempts":3,"timeout_ms":1,"on_risk":"cancel","cancel_grace_ms":2000,"headers":{"k":"v"}}"#
        );
    }

    #[test]
    fn overrides_read_back_and_ignore_what_they_do_not_know() {
        proptest!(|(max_count: Option<u32>, timeout: Option<u64>, grace: Option<u64>, attempts: Option<u32>)| {
            let overrides = Overrides {
                delay: timeout.map(Duration::from_millis),
                max_count,
                retry: attempts.map(|n| RetryPolicy::new().attempts(n)),
                timeout: timeout.map(Duration::from_millis),
                on_risk: None,
                cancel_grace: grace.map(Duration::from_millis),
                attempts,
                headers: Headers::from([("k".into(), String::new())]),
            };
            let json = serde_json::to_string(&overrides).unwrap();
            prop_assert_eq!(serde_json::from_str::<Overrides>(&json).unwrap(), overrides);
        });
        assert!(serde_json::from_str::<Overrides>(r#"{"later":1}"#).unwrap().is_empty());
    }

    #[test]
    fn overrides_go_before_the_task() {
        let task = crate_defaults();
        assert_eq!(task.with(&Overrides::default()), task);
        let own = task.with(&Overrides {
            max_count: Some(1),
            retry: Some(RetryPolicy::new().attempts(4)),
            timeout: Some(seconds(1)),
            on_risk: Some(OnRisk::Cancel),
            cancel_grace: Some(Duration::ZERO),
            ..Overrides::default()
        });
        assert!(own.max_count_set && !task.max_count_set);
        assert_eq!(own.retry.max_attempts(), 4);
        assert_eq!((own.timeout, own.cancel_grace), (Some(seconds(1)), Duration::ZERO));
        assert_eq!(own.on_risk, OnRisk::Cancel);
    }

    #[test]
    fn overrides_are_checked_too() {
        let overrides = Overrides {
            retry: Some(RetryPolicy::new().attempts(0)),
            timeout: Some(Duration::ZERO),
            cancel_grace: Some(Duration::MAX),
            ..Overrides::default()
        };
        assert_eq!(overrides.validate().unwrap_err().len(), 3);
        assert!(Overrides::default().validate().is_ok());
    }

    #[test]
    fn milliseconds_round_up_and_saturate() {
        assert_eq!(to_ms(Duration::ZERO), 0);
        assert_eq!(to_ms(Duration::from_nanos(1)), 1);
        assert_eq!(to_ms(Duration::from_millis(5)), 5);
        assert_eq!(to_ms(Duration::MAX), u64::MAX);
    }

    #[test]
    fn priorities_read_back_from_their_names() {
        for priority in [Priority::High, Priority::Normal, Priority::Low] {
            assert_eq!(priority.as_str().parse::<Priority>().unwrap(), priority);
            assert_eq!(priority.to_string(), priority.as_str());
        }
        assert!("HIGH".parse::<Priority>().is_err());
        assert_eq!((EventMode::On.as_str(), EventMode::Off.as_str()), ("on", "off"));
    }
}
