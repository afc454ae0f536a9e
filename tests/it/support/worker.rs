use super::PATIENCE;
use heartline::{StopReason, Worker};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// A worker that runs in this process and is stopped.
///
/// One that is dropped goes on: it ends with the runtime, as when a test has failed.
#[must_use = "a worker goes on until it is stopped"]
pub struct TestWorker {
    pub id: String,
    /// Whether it runs, or has tried to start once.
    working: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    end: JoinHandle<heartline::Result<StopReason>>,
}

impl TestWorker {
    pub fn start(worker: Worker) -> TestWorker {
        let id = worker.id().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let (works, working) = watch::channel(false);
        let end = tokio::spawn(worker.run_until(async move {
            // A worker asks for the first time when it runs, or when its start failed and is tried again.
            works.send_replace(true);
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        TestWorker { id, working, stop, end }
    }

    /// Waits until it runs, or has tried to start once.
    pub async fn working(&self) {
        let mut working = self.working.clone();
        let started = tokio::time::timeout(PATIENCE, working.wait_for(|working| *working));
        started.await.expect("the worker does not start").expect("the worker could not start");
    }

    /// Stops it, and checks that nothing was left behind.
    pub async fn stop(self) {
        self.stop_within(PATIENCE).await;
    }

    /// The same for one that may take another time.
    pub async fn stop_within(self, limit: Duration) {
        let stopping = tokio::time::timeout(limit, self.begin_stop());
        let reason = stopping.await.expect("the worker does not stop").unwrap().unwrap();
        assert_eq!(reason, StopReason::Shutdown);
    }

    /// Tells it to stop, and leaves the waiting to the caller.
    pub fn begin_stop(self) -> JoinHandle<heartline::Result<StopReason>> {
        assert!(self.stop.send(()).is_ok(), "the worker has ended by itself");
        self.end
    }

    /// Waits until it has ended by itself.
    pub async fn ends(&mut self) -> heartline::Result<StopReason> {
        tokio::time::timeout(PATIENCE, &mut self.end).await.expect("the worker goes on").unwrap()
    }

    /// Drops its future.
    pub fn abort(self) {
        self.end.abort();
    }
}
