//! Metrics of the runs of one worker, in a registry of `prometheus-client`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::process::observer::{Observer, RunEnd, RunInfo};

/// The bounds of run and waiting times, in seconds: 1 ms to 1 h.
pub const BUCKETS: [f64; 13] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];

/// How many codes of failures have a label of their own: a code that is made of data would let a registry grow without end.
const CODES: usize = 50;

/// The label of the other codes.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

/// Counts and times the runs of a worker, in a registry that you serve. Hooks are not counted.
///
/// | metric | labels | what it is |
/// |---|---|---|
/// | `heartline_runs_total` | task, outcome | runs that ended, by [`RunOutcome`](crate::RunOutcome) |
/// | `heartline_run_failures_total` | task, code | runs that failed; codes past 50 are `other` |
/// | `heartline_runs_running` | task | runs that are under way |
/// | `heartline_run_duration_seconds` | task | how long runs took |
/// | `heartline_wait_duration_seconds` | task | how long jobs waited for their first run |
///
/// It tells of its own worker: what waits, and what the fleet does, is told once for all by `heartline metrics`. No label is the id of a
/// job or a worker.
///
/// ```no_run
/// # async fn run(app: heartline::App) -> heartline::Result<heartline::StopReason> {
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let worker = app.worker().observe(heartline::RunMetrics::register(&mut registry));
/// // Serve what `prometheus_client::encoding::text::encode` writes of the registry.
/// worker.run_until_signal().await
/// # }
/// ```
#[derive(Clone)]
pub struct RunMetrics {
    runs: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    running: Family<Labels, Gauge>,
    ran: Family<Labels, Histogram, fn() -> Histogram>,
    waited: Family<Labels, Histogram, fn() -> Histogram>,
    /// The codes that have labels.
    codes: Arc<Mutex<BTreeSet<String>>>,
}

impl RunMetrics {
    /// Metrics that this registry tells.
    pub fn register(registry: &mut Registry) -> RunMetrics {
        let times: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = RunMetrics {
            runs: Family::default(),
            failures: Family::default(),
            running: Family::default(),
            ran: Family::new_with_constructor(times),
            waited: Family::new_with_constructor(times),
            codes: Arc::default(),
        };
        let registry = registry.sub_registry_with_prefix("heartline");
        registry.register("runs", "Runs that ended, by what becomes of the job", metrics.runs.clone());
        registry.register("run_failures", "Runs that failed, by code", metrics.failures.clone());
        registry.register("runs_running", "Runs that are under way", metrics.running.clone());
        let ran = metrics.ran.clone();
        registry.register_with_unit("run_duration", "How long runs took", Unit::Seconds, ran);
        let waited = metrics.waited.clone();
        registry.register_with_unit("wait_duration", "How long jobs waited for their first run", Unit::Seconds, waited);
        metrics
    }

    /// The label of a code.
    fn label(&self, code: &str) -> String {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.contains(code) {
            return code.to_owned();
        }
        if codes.len() >= CODES {
            return OTHER.to_owned();
        }
        codes.insert(code.to_owned());
        code.to_owned()
    }
}

fn of(task: &str) -> Labels {
    vec![("task", task.to_owned())]
}

impl Observer for RunMetrics {
    fn started(&self, run: &RunInfo<'_>) {
        self.running.get_or_create(&of(run.task)).inc();
        if let Some(waited) = run.waited {
            self.waited.get_or_create(&of(run.task)).observe(waited.as_secs_f64());
        }
    }

    fn ended(&self, run: &RunInfo<'_>, end: &RunEnd<'_>) {
        self.running.get_or_create(&of(run.task)).dec();
        self.ran.get_or_create(&of(run.task)).observe(end.ran.as_secs_f64());
        let outcome = vec![("task", run.task.to_owned()), ("outcome", end.outcome.as_str().to_owned())];
        self.runs.get_or_create(&outcome).inc();
        if let Some(code) = end.code {
            self.failures.get_or_create(&vec![("task", run.task.to_owned()), ("code", self.label(code))]).inc();
        }
    }
}

impl fmt::Debug for RunMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunMetrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_end_share_a_label() {
        let metrics = RunMetrics::register(&mut Registry::default());
        for at in 0..CODES {
            assert_eq!(metrics.label(&format!("code_{at}")), format!("code_{at}"));
        }
        assert_eq!((metrics.label("one_more"), metrics.label("code_7")), (OTHER.to_owned(), "code_7".to_owned()));
    }
}
