//! Intervals of rare work. Tests shorten them.

use std::time::Duration;

/// How often a process looks for work that another process lost or did not finish. Every app has the `Default`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How often a worker writes its tasks and workflows into their lists again, in case the server lost a list.
    pub relist: Duration,
    /// How often a worker looks for dead workers of its host.
    pub reconcile: Duration,
    /// After this time any worker takes a workflow step that another process left undone.
    pub workflow_grace: Duration,
    /// A worker that sends no claim for at least this time, although jobs wait, is not live.
    pub claim_silence: Duration,
    /// A worker forgets another one after it saw no sign of life of that worker for this long. If the server's clock
    /// jumped, every worker seems long gone until its next sign of life.
    pub unseen: Duration,
    /// How often a worker looks for due ticks of schedules, and says which schedules its code declares.
    #[cfg(feature = "schedules")]
    pub schedule_look: Duration,
    /// The same while ticks may wait for the end of a job.
    #[cfg(feature = "schedules")]
    pub schedule_pending: Duration,
    /// A worker removes schedules that no worker names after it has named its own without a gap for this long.
    #[cfg(feature = "schedules")]
    pub schedule_steady: Duration,
    /// How often a worker removes unique keys, and keys of lanes, whose jobs are gone.
    pub trim_unique: Duration,
    /// How often a worker records the counters of its tasks in their time series.
    pub series: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            relist: Duration::from_secs(60),
            reconcile: Duration::from_secs(10),
            workflow_grace: Duration::from_secs(10),
            claim_silence: Duration::from_secs(30),
            unseen: Duration::from_secs(60),
            #[cfg(feature = "schedules")]
            schedule_look: Duration::from_secs(5),
            #[cfg(feature = "schedules")]
            schedule_pending: Duration::from_secs(2),
            #[cfg(feature = "schedules")]
            schedule_steady: Duration::from_secs(600),
            trim_unique: Duration::from_secs(60),
            series: Duration::from_secs(30),
        }
    }
}
