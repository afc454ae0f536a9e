//! What a worker process takes of memory: while it holds very many jobs, and after it has worked even more.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Bench;
use crate::child::{Child, Handler, Spec};
use crate::dispatch::{app, fill};
use crate::report::{Row, progress};
use crate::work::{self, TASK};

pub const ROWS: &[&str] = &["worker_10k_held_rss", "worker_10k_held_peak", "worker_growth_per_job"];

const HELD: usize = 10_000;
/// Several beats long, which need memory too.
const INTERVAL: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    if !Path::new("/proc/self/status").exists() {
        progress("memory of worker processes: left out, this system has no /proc");
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    if bench.wants_any(&ROWS[..2]) {
        rows.extend(holding(bench).await?);
    }
    if bench.wants(ROWS[2]) {
        rows.push(after_many(bench).await?);
    }
    Ok(rows)
}

async fn holding(bench: &mut Bench) -> Result<Vec<Row>> {
    let runs = bench.few_runs(3);
    let (mut rss, mut peak, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("memory of a worker that holds {HELD} jobs, run {run} of {runs}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>(TASK)?;
        let (handler, interval) = (Handler::Hold, Some(INTERVAL));
        let spec = Spec { handler, interval, ..Spec::new(TASK, HELD) };
        let mut child = Child::start(bench, &spec).await?;
        idle.push(child.memory("VmRSS")? / MIB);
        fill(&task, HELD, 64).await?;
        child.go().await?;
        child.hear("held").await?;
        while work::held(&mut bench.server)? < HELD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(INTERVAL).await;
        ensure!(work::held(&mut bench.server)? == HELD, "held jobs were lost");
        rss.push(child.memory("VmRSS")? / MIB);
        peak.push(child.memory("VmHWM")? / MIB);
        child.start_kill()?;
        child.gone().await?;
        bench.server.clean()?;
    }
    let note = "whole process, 64 B payloads; raw: connected, before its first job";
    Ok(vec![
        Row::new(ROWS[0], rss, "MiB").raw(idle.clone()).must("≤ 100 MiB", |value, _| value <= 100.0).note(note),
        Row::new(ROWS[1], peak, "MiB").raw(idle).note("the most it had since its start (VmHWM)"),
    ])
}

/// What is still in memory of jobs that ended long ago.
async fn after_many(bench: &mut Bench) -> Result<Row> {
    let (n, runs) = (bench.size(1_000_000), bench.few_runs(1));
    let early = n / 10;
    let (mut growth, mut before, mut after) = (Vec::new(), 0.0, 0.0);
    for run in 1..=runs {
        progress(&format!("memory of a worker after {early} and {n} jobs, run {run} of {runs}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>(TASK)?;
        let spec = Spec::new(TASK, 100);
        let mut child = Child::start(bench, &spec).await?;
        child.go().await?;
        for part in 0..10 {
            fill(&task, early, 64).await?;
            work::settled(&mut bench.server).await?;
            if part == 0 {
                before = child.memory("VmRSS")?;
            }
        }
        after = child.memory("VmRSS")?;
        growth.push((after - before) / (n - early) as f64);
        child.finish().await?;
        bench.server.clean()?;
    }
    Ok(Row::new(ROWS[2], growth, "B").must("≤ 4 B", |value, _| value <= 4.0).note(format!(
        "RSS of a process: {:.1} MiB after {early} no-op jobs, {:.1} MiB after {n}",
        before / MIB,
        after / MIB
    )))
}
