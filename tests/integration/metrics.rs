//! Metrics of a worker, as Prometheus reads them.

use std::collections::BTreeMap;

use heartline::{Context, JobError, RetryPolicy, RunMetrics};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

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
    let test = TestTask::new();
    let app = test.app().await;
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
    eventually("it is over", PATIENCE, over).await;
    worker.stop().await;
}
