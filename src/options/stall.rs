//! When a job counts as stalled, and what happens then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::builder::options;
use super::phases::{PhaseWaits, Wait};
use crate::config_error::Faults;

options! {
    /// When a job counts as stalled, and how often that may happen.
    ///
    /// An option that is not set here comes from the app's defaults, then from the crate's.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartline::StallOptions;
    /// let options = StallOptions::new().interval(Duration::from_secs(15)).max_count(2);
    /// ```
    pub struct StallOptions;

    /// How long a job must be silent, watched the whole time, before it counts as stalled.
    ///
    /// Workers send three heartbeats in an interval. A dead worker's jobs are decided within two intervals plus one heartbeat. If workers
    /// of one task differ during a deploy, the largest interval is in force. 1 s to 24 h, kept in whole milliseconds. It cannot be set for
    /// a single job. Defaults to 30 s.
    pub fn interval(mut self, interval: Duration);

    /// How long a job that was claimed ahead and has not begun must be silent before the sweep decides about it. The decision may come up
    /// to an interval later.
    ///
    /// The worker that started last decides for the task. At least the
    /// [`interval`](StallOptions::interval), at most 24 h. Defaults to the interval.
    pub fn claimed_interval(mut self, interval: Duration);

    /// How long a job whose hook is running must be silent. Otherwise like [`claimed_interval`](StallOptions::claimed_interval).
    pub fn finalizing_interval(mut self, interval: Duration);

    /// Whether silent jobs that were claimed ahead and have not begun return to their lists automatically.
    ///
    /// If not, they stay with their worker, dead or not, and wait for a person. [`Inspector::silent_jobs`](crate::Inspector::silent_jobs)
    /// lists them; [`requeue_claimed`](crate::Inspector::requeue_claimed) and similar actions decide about them within an interval. A job
    /// with a pending cancellation does not wait. A job whose worker sends heartbeats again continues.
    ///
    /// The worker that started last decides for the task. Defaults to `true`.
    pub fn recover_claimed(mut self, is_recovered: bool);

    /// Whether silent jobs that have begun run again, or fail, automatically. If `false`, no job of a dead worker runs
    /// again before a person decides. Otherwise like [`recover_claimed`](StallOptions::recover_claimed).
    pub fn recover_running(mut self, is_recovered: bool);

    /// Whether a hook whose worker died runs again automatically; otherwise like [`recover_claimed`](StallOptions::recover_claimed).
    pub fn recover_finalizing(mut self, is_recovered: bool);

    /// How many stalls a job survives. The next stall fails it with the code `worker_crashed`.
    ///
    /// 0 fails a job at its first stall. Stalls are counted over the life of the job, separately from attempts. A dispatch can set its own.
    /// Defaults to 1; with [`OnCrash::Retry`], to no limit besides the attempts.
    pub fn max_count(mut self, max_count: u32);

    /// What counts as a sign of life. It cannot be set for a single job.
    ///
    /// Defaults to [`Heartbeat::Automatic`].
    pub fn heartbeat(mut self, heartbeat: Heartbeat);

    /// What happens to a job that stalled. It cannot be set for a single job.
    ///
    /// Defaults to [`OnCrash::Recover`].
    pub fn on_crash(mut self, on_crash: OnCrash);

    /// What happens to a running handler when its job may soon be taken. A dispatch can set its own.
    ///
    /// Defaults to [`OnLockRisk::Continue`].
    pub fn on_lock_risk(mut self, on_risk: OnLockRisk);
}

impl StallOptions {
    /// An interval of 10 s, for tasks whose jobs take seconds and whose workers have processor time to spare.
    pub const fn quick() -> StallOptions {
        StallOptions::new().interval(Duration::from_secs(10))
    }

    /// An interval of 5 min, for hosts that may freeze for minutes (load, swapping, live migration). Use it if running a job twice costs
    /// more than a late recovery. Handlers that keep the processor busy do not need it: heartbeats do not depend on them.
    pub const fn cpu_heavy() -> StallOptions {
        StallOptions::new().interval(Duration::from_secs(300))
    }

    /// How long silent jobs of each phase wait.
    pub(super) fn waits(&self, interval: Duration, faults: &mut Faults) -> PhaseWaits {
        let own = [("claimed_interval", self.claimed_interval), ("finalizing_interval", self.finalizing_interval)];
        for (field, own) in own {
            if let Some(own) = own {
                faults.phase_interval(&format!("stall.{field}"), own, interval);
            }
        }
        PhaseWaits {
            claimed: Wait::new(self.claimed_interval, self.recover_claimed, interval),
            running: Wait::new(None, self.recover_running, interval),
            finalizing: Wait::new(self.finalizing_interval, self.recover_finalizing, interval),
        }
    }
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
