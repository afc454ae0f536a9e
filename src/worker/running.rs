//! A worker in a task of its own.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::builder::Worker;
use super::monitor::WorkerMonitor;
use super::stop::StopReason;
use crate::error::Error;
use crate::worker_id::WorkerId;

/// A worker that runs in a tokio task of its own. Made by [`Worker::spawn`].
///
/// ```no_run
/// # use heartline::App;
/// # async fn serve() {}
/// # async fn run(app: App) -> heartline::Result<()> {
/// let worker = app.worker().spawn();
/// serve().await;
/// println!("{}", worker.stop().await?);
/// # Ok(())
/// # }
/// ```
///
/// Dropping it does not stop the worker: only [`RunningWorker::stop`] or the end of the runtime does.
#[derive(Debug)]
pub struct RunningWorker {
    id: WorkerId,
    monitor: WorkerMonitor,
    stop: Arc<Notify>,
    /// `None` after its end was returned.
    worker: Option<JoinHandle<Result<StopReason, Error>>>,
}

impl Worker {
    /// Starts the worker in a tokio task of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(self) -> RunningWorker {
        let (id, monitor, stop) = (self.id().clone(), self.monitor(), Arc::new(Notify::new()));
        let shutdown = {
            let stop = Arc::clone(&stop);
            async move { stop.notified().await }
        };
        let worker = tokio::spawn(self.run_until(shutdown));
        RunningWorker { id, monitor, stop, worker: Some(worker) }
    }
}

impl RunningWorker {
    /// The id under which the worker holds jobs.
    #[must_use]
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// A monitor for probes.
    #[must_use]
    pub fn monitor(&self) -> WorkerMonitor {
        self.monitor.clone()
    }

    /// Asks the worker to stop, and waits until it has: see [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`], and [`Error::Closed`] if its runtime is gone.
    ///
    /// # Panics
    /// If the worker panicked, which is a bug.
    ///
    /// # Cancel safety
    /// If dropped, the worker still stops.
    pub async fn stop(mut self) -> Result<StopReason, Error> {
        self.stop.notify_one();
        self.ended().await
    }

    /// Waits until the worker has stopped by itself, because it could not start or a part of it ended. Returns the reason once. The
    /// next call returns `Closed`.
    ///
    /// # Errors
    /// As [`RunningWorker::stop`].
    ///
    /// # Panics
    /// As [`RunningWorker::stop`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&mut self) -> Result<StopReason, Error> {
        let Some(worker) = &mut self.worker else { return Err(Error::Closed) };
        let ended = worker.await;
        self.worker = None;
        match ended {
            Ok(stopped) => stopped,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(Error::Closed),
        }
    }
}
