//! How long it takes until a worker that is started again on the same host has taken back the jobs of the one that was killed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use heartline::{Context, JobError};
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::child::{Child, Handler, Spec};
use crate::dispatch::{app, payload};
use crate::report::{Row, progress};
use crate::running::SEED;

pub const ROWS: &[&str] = &["restart_1k_of_100k_held", "restart_100k_held"];

/// How many jobs the dead worker held, of how many that are held, and how long it may take, ms.
const CASES: [(usize, usize, f64); 2] = [(1_000, 100_000, 1_000.0), (100_000, 100_000, 3_000.0)];

/// Nobody's sweep is to be sooner.
const INTERVAL: Duration = Duration::from_secs(3600);

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (row, (dead, held, most_ms)) in ROWS.iter().copied().zip(CASES) {
        if !bench.wants(row) {
            continue;
        }
        let (dead, held) = (bench.size(dead), bench.size(held));
        let mut took = Vec::new();
        for run in 0..bench.few_runs(3) {
            progress(&format!("{row}: run {}", run + 1));
            took.push(restart(bench, dead, held).await?.as_secs_f64() * 1e3);
        }
        let must = format!("≤ {most_ms} ms");
        let note = "start of the worker → the last job is taken back; it works them meanwhile";
        rows.push(Row::new(row, took, "ms").must(must, |ms, _| ms <= most_ms).note(note));
    }
    bench.server.clean()?;
    Ok(rows)
}

async fn restart(bench: &mut Bench, dead: usize, held: usize) -> Result<Duration> {
    bench.server.clean()?;
    let spec = Spec { handler: Handler::Hold, interval: Some(INTERVAL), ..Spec::new("restart", 10) };
    let heir = app(&bench.server).await?;
    let task = heir.task("restart", spec.options(), |_: Context, _: String| async { Ok::<(), JobError>(()) })?;
    task.dispatch(payload(64)).await?;
    let mut holder = Child::start(bench, &spec).await?;
    holder.go().await?;
    holder.hear("held").await?;
    let workers = format!("{}:workers", bench.server.prefix);
    let ids: Vec<String> = bench.server.ask(&["ZRANGE", &workers, "0", "0"])?;
    let id = ids.into_iter().next().context("the worker is not listed")?;
    holder.start_kill()?;
    holder.gone().await?;
    let seed = bench.server.own_script(SEED, "restart", &["payload", "locks", "active"])?;
    // One job is held already. The others are those of a worker elsewhere.
    for (first, last, worker) in [(1, dead - 1, id.as_str()), (dead, held - 1, "elsewhere-1-00000000")] {
        let mut from = first;
        while from <= last {
            let to = last.min(from + 1_999);
            let mut call = seed.call();
            call.arg(from).arg(to).arg(worker).arg(1_700_000_000_000_000_u64).arg("x".repeat(64));
            call.query::<()>(bench.server.conn())?;
            from = to + 1;
        }
    }
    let (stop, meta) = (CancellationToken::new(), bench.server.key("restart", "meta"));
    let (stopped, worker) = (stop.clone(), heir.worker());
    let begun = Instant::now();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    let took = loop {
        let taken: Option<u64> = bench.server.ask(&["HGET", &meta, "stalls"])?;
        if taken.is_some_and(|taken| taken >= dead as u64) {
            break begun.elapsed();
        }
        if begun.elapsed() > Duration::from_secs(60) {
            bail!("only {taken:?} of {dead} jobs were taken back");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    stop.cancel();
    let _ = worker.await??;
    Ok(took)
}
