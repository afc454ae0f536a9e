//! Exports the metrics of a worker to Prometheus, serves health probes, and checks what a scrape reads.
//!
//! Run it with `cargo run -p heartline-examples --features metrics --example metrics`. It uses the Redis of `REDIS_URL`, or a private
//! server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use heartline::{App, Context, JobError, RunMetrics, TaskOptions, WorkerMetrics};
use prometheus_client::registry::Registry;
use prometheus_parse::{Scrape, Value};

/// The body of a response, as a scraper or an orchestrator reads it.
fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the response has no head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(body.to_owned())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("metrics-{}", uuid::Uuid::now_v7())).build().await?;
    let exports = app.task("export", TaskOptions::new().concurrency(10), |_: Context, row: u64| async move {
        if row.is_multiple_of(10) {
            return Err(JobError::new("the disk is full".to_owned()).with_code("disk").fatal());
        }
        Ok(row)
    })?;

    // One registry, shared with the other metrics of your program.
    let mut registry = Registry::default();
    let worker = app.worker().observe(RunMetrics::register(&mut registry));
    WorkerMetrics::register(&mut registry, worker.monitor());
    // Probes and `/metrics` at one address.
    let probes = worker.monitor().serve_with_metrics(([127, 0, 0, 1], 0).into(), Arc::new(registry))?;
    let worker = worker.spawn();
    for job in exports.dispatch_many(1..=100).await? {
        // One in ten fails.
        let _ = job.result().await;
    }

    let text = get(probes.address(), "/metrics")?;
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned())))?;
    let value = |name: &str, label: (&str, &str)| {
        let sample = scrape.samples.iter().find(|s| s.metric == name && s.labels.get(label.0) == Some(label.1));
        match &sample.with_context(|| format!("{name} with {label:?} is missing in {text}"))?.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => Ok(*value),
            other => anyhow::bail!("{name} is {other:?}"),
        }
    };
    let (done, failed) = (("outcome", "completed"), ("outcome", "failed"));
    println!(
        "{} runs completed, {} failed",
        value("heartline_runs_total", done)?,
        value("heartline_runs_total", failed)?
    );
    ensure!((value("heartline_runs_total", done)?, value("heartline_runs_total", failed)?) == (90.0, 10.0));
    ensure!(value("heartline_run_failures_total", ("code", "disk"))? == 10.0);
    ensure!(value("heartline_settled_total", ("kind", "claimed"))? == 100.0);

    // The readiness probe of an orchestrator.
    let answer = get(probes.address(), "/ready")?;
    println!("/ready: {}", answer.trim());
    ensure!(answer == "ready\n", "{answer}");

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
