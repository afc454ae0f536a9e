//! Answers probes over HTTP, on a thread of its own: it answers even while handlers block the runtime, which a probe
//! has to detect.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::monitor::{WorkerHealth, WorkerMonitor};

/// How many connections are open at a time. A further one replaces the oldest.
const CONNECTIONS: usize = 64;

/// The type of what `prometheus-client` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a connection, which is for one request, may last.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes the metrics for a scrape. `None` without the path `/metrics`.
type Metrics = Option<Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>>;

/// What the server answers about.
#[derive(Clone)]
struct Answers {
    monitor: WorkerMonitor,
    metrics: Metrics,
}

/// Answers probes until it is dropped. Made by [`WorkerMonitor::serve`].
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct ProbeServer {
    address: SocketAddr,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<()>,
}

impl ProbeServer {
    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl WorkerMonitor {
    /// Answers probes over HTTP at this address, on a thread of its own, until the returned value is dropped. Port 0
    /// selects a free port.
    ///
    /// | path | status |
    /// |---|---|
    /// | `/live` | 200, or 503 if a restart of the process would help |
    /// | `/ready` | 200, or 503 if the worker does not claim or report now |
    /// | `/health` | as `/live`, with all of [`health`](WorkerMonitor::health) as JSON: it contains names of tasks, but no id or address |
    ///
    /// ```no_run
    /// # async fn run(app: heartline::App) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = app.worker();
    /// let _probes = worker.monitor().serve(([0, 0, 0, 0], 8080).into())?;
    /// worker.run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system's error, if the address cannot be bound or a thread cannot be started.
    pub fn serve(&self, listen: SocketAddr) -> io::Result<ProbeServer> {
        self.serve_all(listen, None)
    }

    /// As [`serve`](WorkerMonitor::serve), and answers `/metrics` with those of a registry, as OpenMetrics text.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # async fn run(app: heartline::App) -> Result<(), Box<dyn std::error::Error>> {
    /// use heartline::{RunMetrics, WorkerMetrics};
    /// use prometheus_client::registry::Registry;
    ///
    /// let mut registry = Registry::default();
    /// let worker = app.worker().observe(RunMetrics::register(&mut registry));
    /// WorkerMetrics::register(&mut registry, worker.monitor());
    /// let _probes = worker.monitor().serve_with_metrics(([0, 0, 0, 0], 8080).into(), Arc::new(registry))?;
    /// worker.run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`serve`](WorkerMonitor::serve).
    #[cfg(feature = "metrics")]
    pub fn serve_with_metrics(
        &self,
        listen: SocketAddr,
        registry: Arc<prometheus_client::registry::Registry>,
    ) -> io::Result<ProbeServer> {
        let encode = move || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).map(|()| text)
        };
        self.serve_all(listen, Some(Arc::new(encode)))
    }

    fn serve_all(&self, listen: SocketAddr, metrics: Metrics) -> io::Result<ProbeServer> {
        let bound = TcpListener::bind(listen);
        let listener = bound.map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {listen}: {e}")))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (answers, (stop, stopped)) = (Answers { monitor: self.clone(), metrics }, oneshot::channel());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(&listener, &answers) => {}
                    _ = stopped => {}
                }
            });
        };
        thread::Builder::new().name("heartline-probes".to_owned()).spawn(run)?;
        Ok(ProbeServer { address, _stop: stop })
    }
}

async fn accept(listener: &TcpListener, answers: &Answers) {
    let Ok(listener) = listener.try_clone().and_then(tokio::net::TcpListener::from_std) else { return };
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Probably too many open files: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let answers = answers.clone();
        let connection = tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let answer = answer(&answers, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            // A failed connection needs no handling.
            let _ = tokio::time::timeout(PATIENCE, http.serve_connection(TokioIo::new(stream), answer)).await;
        });
        open.push_back(connection.abort_handle());
    }
}

fn answer(answers: &Answers, request: &Request<Incoming>) -> Response<String> {
    let asks = matches!(*request.method(), Method::GET | Method::HEAD);
    let health = answers.monitor.health();
    let status = |is_well| if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = |is_well, word: &str| if is_well { format!("{word}\n") } else { format!("not {word}\n") };
    let (status, kind, body) = match request.uri().path() {
        _ if !asks => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".to_owned()),
        "/live" => (status(health.live), "text/plain", word(health.live, "live")),
        "/ready" => (status(health.ready), "text/plain", word(health.ready, "ready")),
        "/health" => (status(health.live), "application/json", public_json(health)),
        "/metrics" if answers.metrics.is_some() => match answers.metrics.as_ref().map(|encode| encode()) {
            Some(Ok(text)) => (StatusCode::OK, OPEN_METRICS, text),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "the metrics cannot be written\n".to_owned()),
        },
        _ => (StatusCode::NOT_FOUND, "text/plain", "/live, /ready, /health, and /metrics if served\n".to_owned()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    head.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    response
}

/// The health as JSON. Leaves out the error of a failed start, which may contain details of the server.
fn public_json(mut health: WorkerHealth) -> String {
    const START: &str = "the worker could not start";
    for reason in health.reasons.iter_mut().filter(|reason| reason.starts_with(START)) {
        *reason = format!("{START}: see its log");
    }
    serde_json::to_string(&health).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn the_text_of_a_start_error_goes_only_to_the_log() {
        let monitor = WorkerMonitor::default();
        monitor.ended(&Err(Error::Unsupported { what: "redis.internal:6379".to_owned() }));
        assert!(format!("{:?}", monitor.health()).contains("redis.internal"));
        let shown = public_json(monitor.health());
        assert!(shown.contains("could not start: see its log") && !shown.contains("redis.internal"), "{shown}");
    }
}
