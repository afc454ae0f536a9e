//! How long jobs wait for their start while a worker is as busy as it can be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use heartline::{App, Context, JobError, StopReason};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, fill, options};
use crate::report::{Row, Stat, percentile, progress};

pub const ROWS: &[&str] = &["full_load_start_p99", "no_starvation_start_p99"];

/// Jobs that are open all the time under full load.
const BACKLOG: usize = 2_000;
/// Jobs that are dispatched together under full load.
const GIVEN: usize = 100;
/// The pause between two jobs of the trickle.
const PAUSE: Duration = Duration::from_millis(5);
/// The least samples that say something about a 99th percentile.
const LEAST: usize = 100;

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(ROWS[0]) {
        rows.push(full_load(bench).await?);
    }
    if bench.wants(ROWS[1]) {
        rows.push(no_starvation(bench).await?);
    }
    Ok(rows)
}

/// Times from dispatch to start, in µs: a job carries the moment of its dispatch.
#[derive(Clone)]
struct Waits {
    origin: Instant,
    taken: Arc<Mutex<Vec<f64>>>,
}

impl Waits {
    fn new() -> Waits {
        Waits { origin: Instant::now(), taken: Arc::default() }
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e6
    }

    fn started(&self, dispatched: f64) {
        let wait = self.now() - dispatched;
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }

    fn take(&self) -> Vec<f64> {
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker that is stopped by `stop`.
struct Running {
    stop: CancellationToken,
    worker: JoinHandle<Result<StopReason, heartline::Error>>,
}

impl Running {
    fn start(app: &App) -> Running {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let worker = app.worker();
        let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
        Running { stop, worker }
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let reason = self.worker.await??;
        ensure!(matches!(reason, StopReason::Shutdown), "the worker ended with {reason:?}");
        Ok(())
    }
}

async fn full_load(bench: &mut Bench) -> Result<Row> {
    let (n, runs) = (bench.size(200_000), bench.runs());
    let (mut p99, mut queueing, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("full load, {BACKLOG} jobs open: {n} jobs, run {run} of {runs}"));
        let app = app(&bench.server).await?;
        let (waits, open) = (Waits::new(), Arc::new(Semaphore::new(BACKLOG)));
        let (seen, closed) = (waits.clone(), Arc::clone(&open));
        let task = app.task("loaded", options().concurrency(100), move |_: Context, dispatched: f64| {
            seen.started(dispatched);
            closed.add_permits(1);
            async { Ok::<(), JobError>(()) }
        })?;
        let worker = Running::start(&app);
        let start = Instant::now();
        for _ in 0..n / GIVEN {
            open.acquire_many(GIVEN as u32).await?.forget();
            task.dispatch_many(vec![waits.now(); GIVEN]).await?;
        }
        let rate = (n - BACKLOG) as f64 / start.elapsed().as_secs_f64();
        open.acquire_many(BACKLOG as u32).await?.forget();
        worker.stop().await?;
        bench.server.clean()?;
        // The first ones found a worker that was still starting.
        p99.push(percentile(&waits.take()[n / 10..], 99));
        queueing.push(BACKLOG as f64 / rate * 1e6);
        rates.push(rate);
    }
    Ok(Row::new(ROWS[0], p99, "µs").raw(queueing).must("≤ 3 × raw", |_, ratio| ratio <= 3.0).note(format!(
        "dispatch → start; raw: {BACKLOG} open jobs / the rate, {:.0} jobs/s with the producer in the same process",
        Stat::median_of(rates)
    )))
}

async fn no_starvation(bench: &mut Bench) -> Result<Row> {
    let (n, runs) = (bench.size(500_000), bench.runs());
    let (mut p99, mut idle) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("a trickle beside a flood of {n} jobs, run {run} of {runs}"));
        idle.push(trickle(bench, 0).await?);
        p99.push(trickle(bench, n).await?);
    }
    Ok(Row::new(ROWS[1], p99, "µs")
        .raw(idle)
        .must("≤ raw + 5 ms", |value, ratio| value <= value / ratio + 5_000.0)
        .note(format!(
            "dispatch → start of a job each {} ms while another task of the worker is flooded; raw: it is idle",
            PAUSE.as_millis()
        )))
}

/// The p99 of a task's jobs while another task of the worker has so many.
async fn trickle(bench: &mut Bench, flood: usize) -> Result<f64> {
    let app = app(&bench.server).await?;
    let flooded =
        app.task("flood", options().concurrency(100), |_: Context, _: String| async { Ok::<(), JobError>(()) })?;
    fill(&flooded, flood, 64).await?;
    let waits = Waits::new();
    let seen = waits.clone();
    let task = app.task("trickle", options().concurrency(10), move |_: Context, dispatched: f64| {
        seen.started(dispatched);
        async { Ok::<(), JobError>(()) }
    })?;
    let worker = Running::start(&app);
    // Declared and claiming.
    task.dispatch(waits.now()).await?;
    while waits.take().is_empty() {
        tokio::time::sleep(PAUSE).await;
    }
    let wait = bench.server.key("flood", "wait");
    let mut sent = 0;
    while if flood == 0 { sent < 5 * LEAST } else { bench.server.ask::<usize>(&["LLEN", &wait])? > 0 } {
        task.dispatch(waits.now()).await?;
        sent += 1;
        tokio::time::sleep(PAUSE).await;
    }
    let mut taken = waits.take();
    while taken.len() < sent {
        tokio::time::sleep(PAUSE).await;
        taken.extend(waits.take());
    }
    worker.stop().await?;
    bench.server.clean()?;
    ensure!(sent >= LEAST || bench.quick, "only {sent} jobs came beside the flood");
    Ok(percentile(&taken, 99))
}
