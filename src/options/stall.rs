//! When a job counts as stalled, and what happens then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::phases::{OwnPhases, PhaseWaits};
use crate::config_error::Faults;

/// When a job counts as stalled, and how often that may happen.
///
/// An option that is not set here comes from the app's defaults, then from the crate's.
///
/// ```
/// # use std::time::Duration;
/// # use heartline::StallOptions;
/// let options = StallOptions::new().interval(Duration::from_secs(15)).max_count(2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct StallOptions {
    interval: Option<Duration>,
    max_count: Option<u32>,
    heartbeat: Option<Heartbeat>,
    on_risk: Option<OnLockRisk>,
    on_crash: Option<OnCrash>,
    grace: OwnPhases,
}

impl StallOptions {
    /// Options with nothing set.
    pub const fn new() -> StallOptions {
        StallOptions {
            interval: None,
            max_count: None,
            heartbeat: None,
            on_risk: None,
            on_crash: None,
            grace: OwnPhases::UNSET,
        }
    }

    /// An interval of 10 s, for tasks whose jobs take seconds and whose workers have processor time to spare.
    pub const fn quick() -> StallOptions {
        StallOptions::new().interval(Duration::from_secs(10))
    }

    /// An interval of 30 s, the default.
    pub const fn standard() -> StallOptions {
        StallOptions::new().interval(Duration::from_secs(30))
    }

    /// An interval of 5 min, for hosts that may freeze for minutes (load, swapping, live migration). Use it if running a job twice costs
    /// more than a late recovery. Handlers that keep the processor busy do not need it: heartbeats do not depend on them.
    pub const fn cpu_heavy() -> StallOptions {
        StallOptions::new().interval(Duration::from_secs(300))
    }

    /// How long a job must be silent, watched the whole time, before it counts as stalled.
    ///
    /// Workers send three heartbeats in an interval. A dead worker's jobs are decided within two intervals plus one heartbeat. If workers
    /// of one task differ during a deploy, the largest interval is in force. 1 s to 24 h, kept in whole milliseconds. It cannot be set for
    /// a single job. Defaults to 30 s.
    pub const fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// How long a job that was claimed ahead and has not begun must be silent before the sweep decides about it. The decision may come up
    /// to an interval later.
    ///
    /// The worker that started last decides for the task. At least the
    /// [`interval`](StallOptions::interval), at most 24 h. Defaults to the interval.
    pub const fn claimed_interval(mut self, interval: Duration) -> Self {
        self.grace.claimed.interval = Some(interval);
        self
    }

    /// How long a job whose hook is running must be silent. Otherwise like [`claimed_interval`](StallOptions::claimed_interval).
    pub const fn finalizing_interval(mut self, interval: Duration) -> Self {
        self.grace.finalizing.interval = Some(interval);
        self
    }

    /// Whether silent jobs that were claimed ahead and have not begun return to their lists automatically.
    ///
    /// If not, they stay with their worker, dead or not, and wait for a person. [`Inspector::silent_jobs`](crate::Inspector::silent_jobs)
    /// lists them; [`requeue_claimed`](crate::Inspector::requeue_claimed) and similar actions decide about them within an interval. A job
    /// with a pending cancellation does not wait. A job whose worker sends heartbeats again continues.
    ///
    /// The worker that started last decides for the task. Defaults to `true`.
    pub const fn recover_claimed(mut self, is_recovered: bool) -> Self {
        self.grace.claimed.is_recovered = Some(is_recovered);
        self
    }

    /// Whether silent jobs that have begun run again, or fail, automatically. If `false`, no job of a dead worker runs
    /// again before a person decides. Otherwise like [`recover_claimed`](StallOptions::recover_claimed).
    pub const fn recover_running(mut self, is_recovered: bool) -> Self {
        self.grace.running.is_recovered = Some(is_recovered);
        self
    }

    /// Whether a hook whose worker died runs again automatically; otherwise like [`recover_claimed`](StallOptions::recover_claimed).
    pub const fn recover_finalizing(mut self, is_recovered: bool) -> Self {
        self.grace.finalizing.is_recovered = Some(is_recovered);
        self
    }

    /// How many stalls a job survives. The next stall fails it with the code `worker_crashed`.
    ///
    /// 0 fails a job at its first stall. Stalls are counted over the life of the job, separately from attempts. A dispatch can set its own.
    /// Defaults to 1; with [`OnCrash::Retry`], to no limit besides the attempts.
    pub const fn max_count(mut self, max_count: u32) -> Self {
        self.max_count = Some(max_count);
        self
    }

    /// What counts as a sign of life. It cannot be set for a single job.
    ///
    /// Defaults to [`Heartbeat::Automatic`].
    pub const fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// What happens to a job that stalled. It cannot be set for a single job.
    ///
    /// Defaults to [`OnCrash::Recover`].
    pub const fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = Some(on_crash);
        self
    }

    /// What happens to a running handler when its job may soon be taken. A dispatch can set its own.
    ///
    /// Defaults to [`OnLockRisk::Continue`].
    pub const fn on_lock_risk(mut self, on_risk: OnLockRisk) -> Self {
        self.on_risk = Some(on_risk);
        self
    }

    pub(super) fn or(&self, fallback: &StallOptions) -> StallOptions {
        StallOptions {
            interval: self.interval.or(fallback.interval),
            max_count: self.max_count.or(fallback.max_count),
            heartbeat: self.heartbeat.or(fallback.heartbeat),
            on_risk: self.on_risk.or(fallback.on_risk),
            on_crash: self.on_crash.or(fallback.on_crash),
            grace: self.grace.or(fallback.grace),
        }
    }

    pub(super) fn sets_max_count(&self) -> bool {
        self.max_count.is_some()
    }

    pub(super) fn resolve(&self, faults: &mut Faults) -> ResolvedStall {
        let interval = self.interval.unwrap_or(Duration::from_secs(30));
        faults.interval(interval);
        ResolvedStall {
            interval,
            max_count: self.max_count.unwrap_or(1),
            heartbeat: self.heartbeat.unwrap_or_default(),
            on_risk: self.on_risk.unwrap_or_default(),
            on_crash: self.on_crash.unwrap_or_default(),
            grace: self.grace.resolve(interval, faults),
        }
    }
}

/// The stall options in force.
pub(super) struct ResolvedStall {
    pub(super) interval: Duration,
    pub(super) max_count: u32,
    pub(super) heartbeat: Heartbeat,
    pub(super) on_risk: OnLockRisk,
    pub(super) on_crash: OnCrash,
    pub(super) grace: PhaseWaits,
}

/// What counts as a job's sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Heartbeat {
    /// The worker sends heartbeats for the job while its process lives. A handler that hangs is not detected; use a timeout of the task for
    /// that.
    #[default]
    Automatic,
    /// Only `ctx.heartbeat()` counts: a handler that hangs is detected although its process is healthy. The handler must call it several
    /// times per interval.
    Manual,
}

impl Heartbeat {
    /// The name of the mode in the scripts.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Heartbeat::Automatic => "automatic",
            Heartbeat::Manual => "manual",
        }
    }
}

/// What happens to a job whose worker died, or whose handler was silent.
///
/// Each time, a stall is counted. A pending cancellation takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnCrash {
    /// The job runs again at once, from the front of its list, and uses no attempt. After more than `max_count` stalls it fails with the
    /// code `worker_crashed`.
    #[default]
    Recover,
    /// The stall counts as a failed run: it uses an attempt, and the job waits as its [`RetryPolicy`](crate::RetryPolicy) says. Without an
    /// attempt left it fails with the code `worker_crashed`; with one attempt, the default, it fails at its first stall. It also fails
    /// after more than `max_count` stalls, if that was set for the task or with the dispatch. A default of the app does not count here.
    Retry,
    /// The job fails at once, with the code `worker_crashed`.
    Fail,
}

impl OnCrash {
    /// The name of the choice in the scripts.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            OnCrash::Recover => "recover",
            OnCrash::Retry => "retry",
            OnCrash::Fail => "fail",
        }
    }
}

/// What happens to a running handler when heartbeats of its worker do not reach Redis and the job may soon be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLockRisk {
    /// The handler continues, and its outcome counts if the job was not taken meanwhile. An outage costs no work, but
    /// two runs of the job may overlap for a while.
    #[default]
    Continue,
    /// The handler is cancelled before another worker can hold the job, and the job is requeued with no stall counted. Code that does not
    /// yield cannot be stopped.
    Cancel,
}
