//! `metrics`: the metrics of the fleet for Prometheus, once or as an exporter.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use heartline::inspect::text::many;
use heartline::{FleetReport, Inspector};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::args::Serving;
use crate::failure::Failure;
use crate::openmetrics::{IsReached, as_file, text};
use crate::output::Output;
use crate::serve::serve_guarded;
use crate::session::Session;

/// How long a report is reused, so that frequent scrapes do not each read Redis.
const FRESH: Duration = Duration::from_secs(1);

/// The longest wait for a report, unless the request names its timeout: less than the 5 s of many probes.
const DEFAULT_WAIT: Duration = Duration::from_secs(4);

/// The longest time to read a report, also after the requests for it timed out.
const LONGEST: Duration = Duration::from_secs(30);

/// The header in which Prometheus sends its timeout, in seconds, and how much earlier the answer is sent.
const WAITS: &str = "x-prometheus-scrape-timeout-seconds";
const EARLIER: Duration = Duration::from_millis(500);

/// The content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long the last good report is served if a new one takes longer than the request waits.
const SERVED_FOR: Duration = Duration::from_secs(30);

/// The state of the exporter.
struct Exporter {
    inspector: Inspector,
    out: Output,
    /// The last result and its time. Concurrent requests share one read.
    last: Mutex<Option<(Instant, Seen)>>,
    /// The last good report and its time.
    good: std::sync::Mutex<Option<(Instant, Arc<FleetReport>)>>,
}

/// The result of reading the fleet.
#[derive(Clone)]
enum Seen {
    Fleet(Arc<FleetReport>),
    /// Redis is unreachable.
    Unreachable,
    /// Redis answered with an error.
    Unreadable,
    /// There is no result yet, and the request does not wait longer.
    Late,
}

impl Exporter {
    /// A fresh report, or one of at most [`SERVED_FOR`] if the request's timeout is too short for that; with its age.
    async fn seen(self: Arc<Self>, head: &HeaderMap) -> (Seen, Duration) {
        let waits = head.get(WAITS).and_then(|waits| waits.to_str().ok()?.parse().ok());
        let waits = waits.and_then(|waits| Duration::try_from_secs_f64(waits).ok());
        let wait = waits.map_or(DEFAULT_WAIT, |waits| waits.saturating_sub(EARLIER).min(LONGEST));
        // In a tokio task, so that a request that times out does not cancel the read.
        let own = Arc::clone(&self);
        let looking = tokio::spawn(async move { own.look().await });
        match timeout(wait, looking).await {
            Ok(looked) => (looked.unwrap_or(Seen::Unreadable), Duration::ZERO),
            Err(_) => {
                let good = self.good.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let good = good.map(|(at, fleet)| (Seen::Fleet(fleet), at.elapsed()));
                good.filter(|(_, age)| *age <= SERVED_FOR).unwrap_or((Seen::Late, Duration::ZERO))
            }
        }
    }

    async fn look(&self) -> Seen {
        let mut last = self.last.lock().await;
        if let Some((_, seen)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return seen.clone();
        }
        let looked = timeout(LONGEST, async { Ok(self.inspector.fleet(None).await?) }).await;
        let looked = looked.unwrap_or_else(|_| Err(Failure::Unreachable("redis did not answer in time".to_owned())));
        let seen = match looked {
            Ok(fleet) => {
                let fleet = Arc::new(fleet);
                let good = Some((Instant::now(), Arc::clone(&fleet)));
                *self.good.lock().unwrap_or_else(PoisonError::into_inner) = good;
                Seen::Fleet(fleet)
            }
            Err(failure) => {
                self.out.error(&failure);
                // An older report must not hide the failure.
                self.good.lock().unwrap_or_else(PoisonError::into_inner).take();
                if is_unreachable(&failure) { Seen::Unreachable } else { Seen::Unreadable }
            }
        };
        *last = Some((Instant::now(), seen.clone()));
        seen
    }
}

fn is_unreachable(failure: &Failure) -> bool {
    matches!(failure, Failure::Unreachable(_))
}

pub(super) async fn once(session: &Session) -> Result<(), Failure> {
    let fleet = session.inspector.fleet(None).await.map_err(Failure::from);
    let seen = fleet.as_ref().map_err(|failure| IsReached(!is_unreachable(failure)));
    session.out.verbatim(as_file(&text(seen, Duration::ZERO)?).trim_end())?;
    fleet.map(drop)
}

pub(super) async fn export(session: &Session, serving: Serving) -> Result<(), Failure> {
    let (last, good) = (Mutex::default(), std::sync::Mutex::default());
    let exporter = Arc::new(Exporter { inspector: session.inspector.clone(), out: session.out, last, good });
    let pages = Router::new()
        .route("/", get(|| async { "heartline metrics: /metrics, /health\n" }))
        .route("/metrics", get(metrics))
        .route("/health", get(healthy))
        .with_state(exporter);
    serve_guarded(serving, pages, |at| say!("metrics on http://{at}/metrics; Ctrl-C stops it")).await
}

async fn metrics(State(exporter): State<Arc<Exporter>>, head: HeaderMap) -> Response {
    let out = exporter.out;
    let (seen, age) = exporter.seen(&head).await;
    let fleet = match &seen {
        Seen::Fleet(fleet) => Ok(&**fleet),
        Seen::Unreachable | Seen::Late => Err(IsReached(false)),
        Seen::Unreadable => Err(IsReached(true)),
    };
    match text(fleet, age) {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(failure) => {
            out.error(&failure);
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Whether jobs are processed, and nothing else: a probe may not be allowed to see names.
async fn healthy(State(exporter): State<Arc<Exporter>>, head: HeaderMap) -> Response {
    let what = match exporter.seen(&head).await.0 {
        Seen::Fleet(fleet) => match fleet.diagnoses().iter().filter(|diagnosis| diagnosis.is_risk()).count() {
            0 => return "healthy\n".into_response(),
            risks => format!("{}; `heartline health` lists them\n", many(risks as u64, "risk")),
        },
        Seen::Unreachable | Seen::Unreadable => {
            "redis is unreachable or unreadable; see the log of the exporter\n".to_owned()
        }
        Seen::Late => "redis did not answer within the timeout of this request\n".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, what).into_response()
}
