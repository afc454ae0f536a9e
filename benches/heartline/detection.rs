//! The time until a job of a killed worker is found stalled, in intervals.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use heartline::{Context, JobError};
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::child::{Child, Handler, Spec};
use crate::dispatch::{app, payload};
use crate::report::{Row, progress};

pub const ROWS: &[&str] = &["detection_1s", "detection_3s"];
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let runs = bench.runs();
    let wanted: Vec<(&str, Duration)> =
        ROWS.iter().copied().zip(INTERVALS).filter(|(row, _)| bench.wants(row)).collect();
    let mut trials = Vec::new();
    for (row, interval) in &wanted {
        for run in 0..runs {
            trials.push((*row, *interval, run, format!("{row}-{run}")));
        }
    }
    progress(&format!("detection: {} workers, killed at different times in one run", trials.len()));
    let watcher = app(&bench.server).await?;
    let mut holders = Vec::new();
    for (_, interval, _, name) in &trials {
        let (handler, interval) = (Handler::Hold, Some(*interval));
        let spec = Spec { handler, interval, ..Spec::new(name, 1) };
        let task = watcher.task(name, spec.options(), |_: Context, _: String| async { Ok::<(), JobError>(()) })?;
        task.dispatch(payload(64)).await?;
        let mut holder = Child::start(bench, &spec).await?;
        holder.go().await?;
        holder.wait_for("held").await?;
        holders.push(holder);
    }
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let worker = watcher.worker();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    // Let the watcher run for more than an interval of each task.
    let longest = wanted.iter().map(|(_, interval)| *interval).max().unwrap_or_default();
    tokio::time::sleep(longest + longest / 2).await;

    let kills = trials.iter().zip(&mut holders).map(|((_, interval, run, _), holder)| async move {
        // Each at another time of the epoch.
        tokio::time::sleep(*interval * *run as u32 / runs as u32).await;
        holder.start_kill()?;
        let killed = SystemTime::now().duration_since(UNIX_EPOCH)?;
        holder.wait_for_exit().await?;
        anyhow::Ok(killed)
    });
    let killed = futures_util::future::try_join_all(kills).await?;
    let mut rows = Vec::new();
    for (row, interval) in wanted {
        let mut intervals = Vec::new();
        for ((_, _, _, name), killed) in trials.iter().zip(&killed).filter(|(trial, _)| trial.0 == row) {
            let decided = decided_at(bench, name, interval * 4).await?;
            let took = decided.saturating_sub(*killed);
            intervals.push(took.as_secs_f64() / interval.as_secs_f64());
        }
        // Two intervals and a heartbeat. Redis reports whole milliseconds.
        let most = 7.0 / 3.0 + 0.002 / interval.as_secs_f64();
        let worst = intervals.iter().copied().fold(0.0, f64::max);
        rows.push(
            Row::new(row, intervals, "int.").raw(vec![1.0]).must("≤ 2 + one heartbeat", |_, _| worst <= most).note(
                "SIGKILL → entry in `stalls`, the worst run counts; raw: the interval that a worker has to watch",
            ),
        );
    }
    stop.cancel();
    let _ = worker.await??;
    Ok(rows)
}

/// When the job of the task was found stalled, by the server's clock.
async fn decided_at(bench: &mut Bench, task: &str, within: Duration) -> Result<Duration> {
    let stream = bench.server.key(task, "stalls");
    let start = Instant::now();
    while start.elapsed() < within + Duration::from_secs(5) {
        let entries: Vec<(String, redis::Value)> = bench.server.ask(&["XRANGE", &stream, "-", "+"])?;
        if let Some((id, _)) = entries.first() {
            let ms = id.split('-').next().and_then(|ms| ms.parse().ok()).context("the id of an entry has no time")?;
            return Ok(Duration::from_millis(ms));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the job of {task} was not found stalled")
}
