//! Probes and metrics of a worker at one address.

use std::io;
use std::net::SocketAddr;

use crate::worker::builder::Worker;
#[cfg(feature = "metrics")]
use {
    crate::metrics::{RunMetrics, WorkerMetrics},
    prometheus_client::registry::Registry,
    std::sync::Arc,
};

impl Worker {
    /// Answers probes over HTTP while the worker runs, as [`WorkerMonitor::serve`](crate::WorkerMonitor::serve) does. With the
    /// feature `metrics` it also answers `/metrics`, with `WorkerMetrics` and `RunMetrics` in a registry of its own.
    ///
    /// ```no_run
    /// # async fn run(app: heartline::App) -> Result<(), Box<dyn std::error::Error>> {
    /// app.worker().serve(([0, 0, 0, 0], 8080).into())?.run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system's error, if the address cannot be bound or a thread cannot be started.
    pub fn serve(mut self, listen: SocketAddr) -> io::Result<Worker> {
        #[cfg(not(feature = "metrics"))]
        let server = self.monitor().serve(listen)?;
        #[cfg(feature = "metrics")]
        let server = {
            let mut registry = Registry::default();
            self = self.observe(RunMetrics::register(&mut registry));
            WorkerMetrics::register(&mut registry, self.monitor());
            self.monitor().serve_with_metrics(listen, Arc::new(registry))?
        };
        self.server = Some(server);
        Ok(self)
    }
}
