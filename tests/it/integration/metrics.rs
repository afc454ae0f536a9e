//! Metrics of a worker in the Prometheus format.

use std::collections::BTreeMap;

use heartline::{
    Context, DetectorReset, JobError, RetryPolicy, RunMetrics, StallAction, StallReason, WorkerMetrics, WorkerStats,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::integration::fixtures::shared;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};

fn samples(registry: &Registry) -> BTreeMap<String, f64> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn each_run_is_counted_once_and_timed() {
    let (test, app) = shared().await;
    let journal = test.journal.clone();
    let handler = move |ctx: Context, input: String| {
        let journal = journal.clone();
        async move {
            match input.as_str() {
                "fail" => Err(JobError::new("no".to_owned()).with_code("disk")),
                "hold" => journal.work(ctx, "gate".to_owned()).await,
                _ => Ok(ctx.fence()),
            }
        }
    };
    let options = fast().retry(RetryPolicy::new().attempts(2).fixed(std::time::Duration::from_millis(1)));
    let task = app.task(TASK, options, handler).unwrap();
    let mut registry = Registry::default();
    let worker = TestWorker::start(app.worker().observe(RunMetrics::register(&mut registry)));
    task.dispatch("x".into()).await.unwrap().result().await.unwrap();
    task.dispatch("fail".into()).await.unwrap().result().await.unwrap_err();
    let held = task.dispatch("hold".into()).await.unwrap();
    let label = |name: &str, more: &str| format!("heartline_{name}{{task=\"{TASK}\"{more}}}");
    eventually("it runs", PATIENCE, async || samples(&registry).get(&label("runs_running", "")) == Some(&1.0)).await;
    let seen = samples(&registry);
    let runs = |outcome: &str| seen.get(&label("runs_total", &format!(",outcome=\"{outcome}\""))).copied();
    assert_eq!((runs("completed"), runs("failed"), runs("retrying")), (Some(1.0), Some(1.0), Some(1.0)), "{seen:?}");
    assert_eq!(seen[&label("run_failures_total", ",code=\"disk\"")], 2.0);
    assert_eq!(
        (seen[&label("run_duration_seconds_count", "")], seen[&label("wait_duration_seconds_count", "")]),
        (3.0, 3.0)
    );
    let buckets = seen.keys().filter(|name| name.starts_with("heartline_run_duration_seconds_bucket")).count();
    assert_eq!(buckets, 14, "13 bounds and infinity: {seen:?}");
    test.journal.open("gate");
    held.result().await.unwrap();
    let over = async || samples(&registry).get(&label("runs_running", "")) == Some(&0.0);
    eventually("the run is over", PATIENCE, over).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_counts_failures_and_recoveries() {
    let test = TestTask::plain();
    let line = Proxy::start(test.redis().address()).await;
    let (far, near) = (test.app_at(&line.url()).await, test.app().await);
    let jobs = test.declare_at(&far, fast());
    test.declare_at(&near, fast());
    let (cut, whole) = (far.worker(), near.worker());
    let (cut_off, watches) = (cut.monitor(), whole.monitor());
    assert_eq!(cut_off.stats(), WorkerStats::default());
    let mut registry = Registry::default();
    WorkerMetrics::register(&mut registry, watches.clone());
    let cut = TestWorker::start(cut);
    jobs.dispatch("gate".into()).id("held").await.unwrap();
    eventually("it holds the job", PATIENCE, async || cut_off.health().held == 1).await;
    let whole = TestWorker::start(whole);
    line.pause();
    let found = || Some(watches.stats().tasks.first()?.stalls[&StallReason::Silent][&StallAction::Recovered]);
    eventually("the other worker finds it", PATIENCE, async || found() == Some(1)).await;
    eventually("and runs it", PATIENCE, async || watches.health().held == 1).await;
    let at_risk = async || cut_off.stats().tasks[0].at_risk == 1;
    eventually("its holder knows of the risk", PATIENCE, at_risk).await;
    let figures = cut_off.stats().tasks.remove(0);
    assert_eq!((figures.locks_lost, figures.held), (0, 1), "{figures:?}");
    let breaks = || cut_off.stats().tasks[0].watch_breaks.get(&DetectorReset::NoAnswer).copied();
    eventually("its watch is broken", PATIENCE, async || breaks() > Some(0)).await;
    line.resume();
    eventually("it notices the loss", PATIENCE, async || cut_off.stats().tasks[0].locks_lost == 1).await;
    test.journal.open("gate");
    let reported = format!("heartline_settled_total{{task=\"{TASK}\",kind=\"reported\"}}");
    let ends = async || samples(&registry).get(&reported) == Some(&1.0);
    eventually("the other worker ends it", PATIENCE, ends).await;
    assert_eq!(jobs.counts().await.unwrap().completed, 1);

    let seen = samples(&registry);
    let of = |name: &str, more: &str| seen[&format!("heartline_{name}{{task=\"{TASK}\"{more}}}")];
    let stalls = |reason| of("stalls_total", &format!(",action=\"recovered\",reason=\"{reason}\""));
    assert_eq!([stalls("silent"), stalls("handler_silent"), stalls("worker_restarted")], [1.0, 0.0, 0.0]);
    assert_eq!((of("settled_total", ",kind=\"claimed\""), of("settled_total", ",kind=\"reported\"")), (1.0, 1.0));
    assert!(of("sweeps_total", "") >= 1.0 && of("beat_duration_seconds_count", "") >= 1.0, "{seen:?}");
    let all = seen[&format!("heartline_beat_duration_seconds_bucket{{le=\"+Inf\",task=\"{TASK}\"}}")];
    assert_eq!(all, of("beat_duration_seconds_count", ""), "buckets are cumulative");
    assert!(seen["heartline_call_duration_seconds_count{call=\"settle\"}"] >= 2.0, "{seen:?}");
    assert_eq!((of("locks_lost_total", ""), of("slots", ",kind=\"all\"")), (0.0, 10.0));
    let busy = [
        of("at_risk_total", ""),
        seen["heartline_process_frozen_total"],
        seen["heartline_runtime_blocked_seconds_total"],
    ];
    assert!(busy.iter().all(|count| *count >= 0.0), "a busy machine may raise them: {busy:?}");
    cut.stop().await;
    whole.stop().await;
    assert_eq!(watches.stats(), WorkerStats::default());
}
