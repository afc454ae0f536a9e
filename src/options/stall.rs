//! How silence is found and what follows from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::faults::Faults;

/// When a running job counts as stalled, and how often that may happen.
///
/// What is not set here comes from the app's defaults, then from the crate's.
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
    on_risk: Option<OnRisk>,
}

impl StallOptions {
    /// Options with nothing set.
    pub const fn new() -> StallOptions {
        StallOptions { interval: None, max_count: None, heartbeat: None, on_risk: None }
    }

    /// How long a job must stay silent, watched the whole time, before it counts as stalled.
    ///
    /// Workers beat three times in it, and a dead worker's jobs are decided within two of it plus one beat.
    /// Workers of one task may differ during a deploy: the largest is in force. 1 s to 24 h, kept in whole
    /// milliseconds; it cannot be set for a single job. Defaults to 30 s.
    pub const fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// How many stalls a job survives: the next one fails it with the code `worker_crashed`.
    ///
    /// 0 fails a job at its first stall. Stalls are counted for the life of the job and apart from attempts.
    /// A dispatch can set its own. Defaults to 1.
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

    /// What happens to a running handler when its job may soon be taken. A dispatch can set its own.
    ///
    /// Defaults to [`OnRisk::Continue`].
    pub const fn on_risk(mut self, on_risk: OnRisk) -> Self {
        self.on_risk = Some(on_risk);
        self
    }

    pub(super) fn or(&self, fallback: &StallOptions) -> StallOptions {
        StallOptions {
            interval: self.interval.or(fallback.interval),
            max_count: self.max_count.or(fallback.max_count),
            heartbeat: self.heartbeat.or(fallback.heartbeat),
            on_risk: self.on_risk.or(fallback.on_risk),
        }
    }

    pub(super) fn sets_max_count(&self) -> bool {
        self.max_count.is_some()
    }

    pub(super) fn resolve(&self, faults: &mut Faults) -> (Duration, u32, Heartbeat, OnRisk) {
        let interval = self.interval.unwrap_or(Duration::from_secs(30));
        faults.interval(interval);
        (interval, self.max_count.unwrap_or(1), self.heartbeat.unwrap_or_default(), self.on_risk.unwrap_or_default())
    }
}

/// What counts as a job's sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Heartbeat {
    /// The worker beats for the job while its process lives. A handler that hangs is not found; give the
    /// task a timeout for that.
    #[default]
    Automatic,
    /// Only `ctx.heartbeat()` counts: a handler that hangs is found although its process is fine. The handler
    /// must call it several times an interval.
    Manual,
}

impl Heartbeat {
    /// The word under which the scripts know the mode.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Heartbeat::Automatic => "automatic",
            Heartbeat::Manual => "manual",
        }
    }
}

/// What happens to a running handler when its worker's beats do not get through and the job may soon be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRisk {
    /// The handler goes on, and its outcome counts if the job was not taken meanwhile: an outage costs no work,
    /// but two runs of the job may overlap for a while.
    #[default]
    Continue,
    /// The handler is cancelled before anybody else can hold the job, and the job is requeued with no stall
    /// counted. Code that does not yield cannot be stopped.
    Cancel,
}
