//! Metrics of one worker for a registry of `prometheus-client`: its runs and its internals.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::latency::{BOUNDS, LatencySummary};
use crate::mutex::Mutex;
use crate::runtime::observer::{Observer, RunEnd, RunInfo};
use crate::runtime::stats::TaskStats;
use crate::stall::action::StallAction;
use crate::worker::monitor::WorkerMonitor;

/// The most codes of failures with a label of their own. Codes that contain data would make the registry grow without bound.
const CODES: usize = 50;

/// The label of all other codes.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

/// Counts and times the runs of a worker, in a registry that you serve. Hooks are not counted.
///
/// | metric | labels | meaning |
/// |---|---|---|
/// | `heartline_runs_total` | task, outcome | ended runs, by [`RunOutcome`](crate::RunOutcome) |
/// | `heartline_run_failures_total` | task, code | failed runs; codes past 50 are `other` |
/// | `heartline_runs_running` | task | current runs |
/// | `heartline_run_duration_seconds` | task | how long runs took |
/// | `heartline_wait_duration_seconds` | task | how long jobs waited for their first run |
///
/// These are metrics of one worker. For waiting jobs and all workers together, scrape `heartline metrics` once. No label is the id of a job
/// or a worker.
///
/// ```no_run
/// # async fn run(app: heartline::App) -> heartline::Result<heartline::StopReason> {
/// use heartline::{RunMetrics, WorkerMetrics};
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let worker = app.worker().observe(RunMetrics::register(&mut registry));
/// WorkerMetrics::register(&mut registry, worker.monitor());
/// // Serve what `prometheus_client::encoding::text::encode` writes of the registry, or use `WorkerMonitor::serve_with_metrics`.
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
    /// The codes that have a label of their own.
    codes: Arc<Mutex<BTreeSet<String>>>,
}

impl RunMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> RunMetrics {
        let times: fn() -> Histogram = || Histogram::new(BOUNDS);
        let metrics = RunMetrics {
            runs: Family::default(),
            failures: Family::default(),
            running: Family::default(),
            ran: Family::new_with_constructor(times),
            waited: Family::new_with_constructor(times),
            codes: Arc::default(),
        };
        let registry = registry.sub_registry_with_prefix("heartline");
        registry.register("runs", "Runs that ended, by what happens to the job", metrics.runs.clone());
        registry.register("run_failures", "Runs that failed, by code", metrics.failures.clone());
        registry.register("runs_running", "Runs that are under way", metrics.running.clone());
        let ran = metrics.ran.clone();
        registry.register_with_unit("run_duration", "How long runs took", Unit::Seconds, ran);
        let waited = metrics.waited.clone();
        registry.register_with_unit("wait_duration", "How long jobs waited for their first run", Unit::Seconds, waited);
        metrics
    }

    /// The code itself, or [`OTHER`] once [`CODES`] others have a label.
    fn label(&self, code: &str) -> String {
        let mut codes = self.codes.lock();
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

/// What a worker counts of itself, in a registry that you serve: heartbeats, calls, sweeps and problems.
///
/// | metric | labels | meaning |
/// |---|---|---|
/// | `heartline_slots` | task, kind (`held`, `all`) | jobs that it holds, and may hold |
/// | `heartline_beat_duration_seconds` | task | how long heartbeats took to be answered |
/// | `heartline_settle_duration_seconds` | task | how long settle calls took, which report outcomes and claim jobs |
/// | `heartline_settled_total` | task, kind (`reported`, `claimed`) | outcomes reported and jobs claimed by settle calls |
/// | `heartline_settle_repeated_total` | task | settle calls that were repeated without an answer |
/// | `heartline_sweeps_total` | task | sweeps of this worker that began an epoch |
/// | `heartline_stalls_total` | task, action, reason | jobs that it found stalled, or recovered from a dead worker of its host, by [`StallAction`](crate::StallAction) and [`StallReason`](crate::StallReason) |
/// | `heartline_not_replicated_total` | task | outcomes that fewer replicas acknowledged than [`TaskOptions::settle_replicated`](crate::TaskOptions::settle_replicated) waits for |
/// | `heartline_locks_lost_total` | task | jobs that were taken from it while it ran them |
/// | `heartline_at_risk_total` | task | jobs at risk, since no heartbeat was answered |
/// | `heartline_watch_broken_total` | task, cause | how often its watch restarted, by [`DetectorReset`](crate::DetectorReset) |
/// | `heartline_call_duration_seconds` | call | how long each script called by the process took, including calls of its producers |
/// | `heartline_process_frozen_total` | | how often the process did not run |
/// | `heartline_runtime_blocked_seconds_total` | | for how long handlers blocked the runtime |
///
/// The numbers are read when the registry is encoded. A registry takes one worker; for several, use a sub-registry with a label for each.
/// See [`RunMetrics`] for an example.
#[derive(Debug)]
pub struct WorkerMetrics(WorkerMonitor);

impl WorkerMetrics {
    /// Registers the metrics of the worker of this monitor.
    pub fn register(registry: &mut Registry, monitor: WorkerMonitor) {
        let registry = registry.sub_registry_with_prefix("heartline");
        registry.register_collector(Box::new(WorkerMetrics(monitor)));
    }
}

/// Encodes one metric of each task.
fn encode_tasks<T>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    values: Vec<(Labels, T)>,
    kind: MetricType,
    encode: impl Fn(&T, prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in &values {
        encode(value, metric.encode_family(labels)?)?;
    }
    Ok(())
}

impl Collector for WorkerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = self.0.stats();
        let each = |read: fn(&TaskStats) -> Vec<Labelled>| {
            figures.tasks.iter().flat_map(|task| labelled(task, read(task))).collect::<Vec<_>>()
        };
        let slots = each(|task| vec![kind("held", task.held), kind("all", task.slots)]);
        let name = ("slots", "Jobs that the worker holds, and may hold", None);
        encode_tasks(&mut encoder, name, slots, MetricType::Gauge, |value, mut metric| metric.encode_gauge(value))?;
        let spreads: [Metric<LatencySummary>; 2] = [
            ("beat_duration", "How long heartbeats took to be answered", |task| task.beats.clone()),
            ("settle_duration", "How long settle calls took, which report outcomes and claim jobs", |task| {
                task.settles.clone()
            }),
        ];
        let calls = figures.calls.iter().map(|(call, spread)| (vec![("call", (*call).to_owned())], spread.clone()));
        let calls = ("call_duration", "How long scripts took to be answered", calls.collect());
        let of_tasks = spreads.map(|(name, help, read)| {
            (name, help, figures.tasks.iter().map(|task| (of(&task.task), read(task))).collect::<Vec<_>>())
        });
        for (name, help, values) in of_tasks.into_iter().chain([calls]) {
            let name = (name, help, Some(&Unit::Seconds));
            encode_tasks(&mut encoder, name, values, MetricType::Histogram, |spread: &LatencySummary, mut metric| {
                let bound = |(bound, count): &(f64, u64)| (if bound.is_finite() { *bound } else { f64::MAX }, *count);
                let buckets: Vec<(f64, u64)> = spread.buckets.iter().map(bound).collect();
                metric.encode_histogram::<NoLabelSet>(spread.sum.as_secs_f64(), spread.count, &buckets, None)
            })?;
        }
        let counters: [Metric<Vec<Labelled>>; 8] = [
            ("settled", "Outcomes that were reported, and jobs that were claimed", |task| {
                vec![kind("reported", task.reported), kind("claimed", task.claimed)]
            }),
            ("settle_repeated", "Settle calls that were repeated without an answer", |task| single(task.repeated)),
            ("sweeps", "Sweeps that began an epoch", |task| single(task.sweeps)),
            ("stalls", "Jobs that were found stalled, by what was done with them, and how that was detected", |task| {
                let mut counts = Vec::new();
                for (reason, found) in &task.stalls {
                    let labels =
                        |action: &StallAction| vec![("action", action.to_string()), ("reason", reason.to_string())];
                    counts.extend(found.iter().map(|(action, count)| (labels(action), *count)));
                }
                counts
            }),
            ("locks_lost", "Jobs that were taken from the worker while it ran them", |task| single(task.locks_lost)),
            ("at_risk", "Jobs that were at risk, since no heartbeat was answered", |task| single(task.at_risk)),
            ("not_replicated", "Outcomes that fewer replicas acknowledged than requested", |task| {
                single(task.not_replicated)
            }),
            ("watch_broken", "How often the watch over the task restarted, by cause", |task| {
                task.watch_breaks.iter().map(|(cause, count)| (vec![("cause", cause.to_string())], *count)).collect()
            }),
        ];
        for (name, help, read) in counters {
            let count = |value: &u64, mut metric: prometheus_client::encoding::MetricEncoder<'_>| {
                metric.encode_counter::<NoLabelSet, _, f64>(value, None)
            };
            encode_tasks(&mut encoder, (name, help, None), each(read), MetricType::Counter, count)?;
        }
        let frozen = ConstCounter::new(figures.standstills);
        let help = "How often the process was frozen";
        frozen.encode(encoder.encode_descriptor("process_frozen", help, None, frozen.metric_type())?)?;
        let blocked = ConstCounter::new(figures.runtime_blocked.as_secs_f64());
        let help = "For how long handlers blocked the runtime";
        let seconds = Some(&Unit::Seconds);
        blocked.encode(encoder.encode_descriptor("runtime_blocked", help, seconds, blocked.metric_type())?)
    }
}

/// The name of a metric, its help text, and how to read it from the figures of a task.
type Metric<T> = (&'static str, &'static str, fn(&TaskStats) -> T);

/// A number of a task, and its labels besides the task.
type Labelled = (Labels, u64);

fn single(count: u64) -> Vec<Labelled> {
    vec![(Vec::new(), count)]
}

fn kind(kind: &str, count: u64) -> Labelled {
    (vec![("kind", kind.to_owned())], count)
}

fn labelled(task: &TaskStats, values: Vec<Labelled>) -> Vec<(Labels, u64)> {
    values.into_iter().map(|(own, count)| (of(&task.task).into_iter().chain(own).collect(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_beyond_the_bound_share_a_label() {
        let metrics = RunMetrics::register(&mut Registry::default());
        for at in 0..CODES {
            assert_eq!(metrics.label(&format!("code_{at}")), format!("code_{at}"));
        }
        assert_eq!((metrics.label("one_more"), metrics.label("code_7")), (OTHER.to_owned(), "code_7".to_owned()));
    }
}
