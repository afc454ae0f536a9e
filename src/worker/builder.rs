//! A worker, and its settings before it runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::identity::WorkerIdentity;
use super::monitor::WorkerMonitor;
use crate::backend::engine::Store;
use crate::config_error::Faults;
use crate::error::Error;
use crate::options::resolved::Resolved;
use crate::options::retention::RetentionLimit;
use crate::runtime::observer::Observer;
use crate::runtime::shared::FAREWELL;
use crate::runtime::state::Data;
use crate::runtime::task::Definition;
use crate::stall::cadence::reporting_time;
use crate::worker_id::WorkerId;

/// Works the tasks of an [`App`](crate::App). Made by [`App::worker`](crate::App::worker).
///
/// ```no_run
/// # use heartline::{App, StopReason};
/// # async fn run(app: App) -> heartline::Result<StopReason> {
/// let worker = app.worker().tasks(["export", "mail"])?.max_jobs(50);
/// println!("{} stops within {:?}", worker.id(), worker.max_shutdown_time());
/// worker.run_until_signal().await
/// # }
/// ```
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) data: Arc<Data>,
    pub(crate) tasks: Vec<Definition>,
    pub(crate) cap: Option<usize>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) id: WorkerId,
    pub(crate) identity: WorkerIdentity,
    pub(crate) presence_retention: RetentionLimit,
    pub(crate) monitor: WorkerMonitor,
    /// Set when it begins to work: the App tells those who subscribe to stalls later.
    pub(crate) ran: Arc<AtomicBool>,
    /// Answers probes for as long as the worker exists.
    #[cfg(feature = "probes")]
    pub(crate) server: Option<super::probes::ProbeServer>,
}

impl Worker {
    /// Works only the tasks of these names. Defaults to every task with a handler.
    ///
    /// # Errors
    /// [`Error::Config`] if one of the names has no handler in this App.
    pub fn tasks<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Worker, Error> {
        let mut kept: Vec<Definition> = Vec::new();
        let mut faults = Faults::default();
        for name in names {
            match self.tasks.iter().find(|task| &*task.name == name) {
                // Keep each task once: two drivers of one task would share call numbers.
                Some(task) if kept.iter().all(|kept| kept.name != task.name) => kept.push(task.clone()),
                Some(_) => {}
                None => faults.add(
                    "worker.tasks",
                    name,
                    "must be a task of this App with a handler",
                    "give it a handler with App::register or App::task first, or correct the name",
                ),
            }
        }
        faults.finish()?;
        self.tasks = kept;
        Ok(self)
    }

    /// The most jobs that this worker runs at a time. Its tasks get free slots in turn. Jobs claimed ahead
    /// ([`TaskOptions::prefetch`](crate::TaskOptions::prefetch)) are not included. Defaults to no limit other than each task's own
    /// concurrency. With 0 the worker does not start.
    pub fn max_jobs(mut self, jobs: usize) -> Worker {
        self.cap = Some(jobs.min(Semaphore::MAX_PERMITS));
        self
    }

    /// Gives the worker an exclusive name. Defaults to none.
    pub fn identity(mut self, identity: WorkerIdentity) -> Worker {
        self.identity = identity;
        self
    }

    /// How many gone workers [`Inspector::workers`](crate::Inspector::workers) lists, and for how long: their presence explains the
    /// stalls of their jobs. Every worker with the App's prefix applies its own setting. Defaults to 7 days and 1,000 workers.
    ///
    /// The age must be at least 60 s. It counts from the worker's last sign of life. Even with a smaller age, a worker is kept for an
    /// hour; even above the count, for about 6 minutes. An invalid setting is reported when the worker starts.
    pub fn presence_retention(mut self, limit: RetentionLimit) -> Worker {
        self.presence_retention = limit;
        self
    }

    /// Calls the observer for every run of this worker, and for every call to Redis that reports outcomes or claims
    /// jobs. Observers are called in the order in which they were added. Defaults to none.
    pub fn observe(mut self, observer: impl Observer) -> Worker {
        self.observers.push(Arc::new(observer));
        self
    }

    /// The longest time that a shutdown takes, from the signal until the worker has stopped. The sweep of another
    /// worker recovers the jobs that are unfinished then. Give the process this time before it is killed
    /// (`terminationGracePeriodSeconds`, `TimeoutStopSec`).
    #[must_use]
    pub fn max_shutdown_time(&self) -> Duration {
        let longest = self.tasks.iter().map(|task| {
            let Resolved { shutdown_grace, cancel_grace, interval, .. } = *task.options;
            shutdown_grace.saturating_add(cancel_grace).saturating_add(reporting_time(interval))
        });
        longest.max().unwrap_or_default().saturating_add(FAREWELL)
    }

    /// A monitor for probes. It works before the worker runs, while it runs, and after it has stopped.
    #[must_use]
    pub fn monitor(&self) -> WorkerMonitor {
        self.monitor.clone()
    }

    /// The id under which this worker will hold jobs.
    #[must_use]
    pub fn id(&self) -> &WorkerId {
        &self.id
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: Vec<&str> = self.tasks.iter().map(|task| &*task.name).collect();
        f.debug_struct("Worker").field("id", &self.id).field("tasks", &tasks).field("cap", &self.cap).finish()
    }
}
