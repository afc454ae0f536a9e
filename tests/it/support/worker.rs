use super::PATIENCE;
use super::eventually::eventually;
use heartline::{StopReason, Worker, WorkerMonitor, WorkerPhase};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A worker that runs in this process and is stopped.
///
/// A dropped one continues: it ends with the runtime, as when a test has failed.
#[must_use = "a worker runs until it is stopped"]
pub struct TestWorker {
    pub id: String,
    monitor: WorkerMonitor,
    stop: oneshot::Sender<()>,
    end: JoinHandle<heartline::Result<StopReason>>,
}

impl TestWorker {
    pub fn start(worker: Worker) -> TestWorker {
        let id = worker.id().to_string();
        let monitor = worker.monitor();
        let (stop, stopped) = oneshot::channel::<()>();
        let end = tokio::spawn(worker.run_until(async move {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        TestWorker { id, monitor, stop, end }
    }

    /// Waits until it runs.
    pub async fn working(&self) {
        let phase = || self.monitor.health().phase;
        eventually("the worker starts", PATIENCE, async || phase() != WorkerPhase::Starting).await;
        assert_ne!(phase(), WorkerPhase::Stopped, "the worker could not start");
    }

    /// Stops it, and checks that nothing is left.
    pub async fn stop(self) {
        self.stop_within(PATIENCE).await;
    }

    /// The same with another time limit.
    pub async fn stop_within(self, limit: Duration) {
        let stopping = tokio::time::timeout(limit, self.begin_stop());
        let reason = stopping.await.expect("the worker does not stop").unwrap().unwrap();
        assert_eq!(reason, StopReason::Shutdown);
    }

    /// Stops it, and leaves the waiting to the caller.
    pub fn begin_stop(self) -> JoinHandle<heartline::Result<StopReason>> {
        assert!(self.stop.send(()).is_ok(), "the worker has ended by itself");
        self.end
    }

    /// Waits until it has ended by itself.
    pub async fn ends(&mut self) -> heartline::Result<StopReason> {
        tokio::time::timeout(PATIENCE, &mut self.end).await.expect("the worker continues").unwrap()
    }

    /// Drops its future.
    pub fn abort(self) {
        self.end.abort();
    }
}
