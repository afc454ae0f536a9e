//! Ticks of schedules: many in one second, the time until a handler starts, and the calls with many workers.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use heartline::{Context, JobError, Overlap, RunningWorker, Schedule};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::Bench;
use crate::dispatch::{app, options, payload};
use crate::report::{Row, percentile, progress};
use crate::server::Server;

/// From a tick of 10,000 schedules until Redis has all jobs, and the longest call of a script meanwhile.
const FIRED: [&str; 2] = ["schedules_10000_fired", "schedules_10000_longest_call"];

/// From a tick to the start of its handler, in an idle worker.
const START: [&str; 2] = ["schedules_idle_start_p50", "schedules_idle_start_p99"];

/// Calls of scripts per tick with many workers, without those that they make anyway.
const CALLS: &str = "schedules_calls_50_workers";

const TASK: &str = "ticking";
/// The scripts that find ticks and fire them.
const SCRIPTS: [&str; 2] = ["schedule_look", "schedule_fire"];
const SECOND: Duration = Duration::from_secs(1);
/// Schedules that are put at the same time.
const TOGETHER: usize = 100;
const WORKERS: u32 = 50;
/// How often a worker looks for ticks, as in src/timings.rs.
const LOOK: Duration = Duration::from_secs(5);
/// The ticks of [`CALLS`], one a second.
const TICKS: u32 = 20;

/// The names of the rows that are measured together.
pub fn parts() -> Vec<Vec<&'static str>> {
    vec![FIRED.to_vec(), START.to_vec(), vec![CALLS]]
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants_any(&FIRED) {
        rows.extend(fired(bench).await?);
    }
    if bench.wants_any(&START) {
        rows.extend(start(bench).await?);
    }
    if bench.wants(CALLS) {
        rows.push(calls(bench).await?);
    }
    Ok(rows)
}

async fn fired(bench: &mut Bench) -> Result<[Row; 2]> {
    let (n, count) = (bench.size(10_000), bench.few_runs(3));
    let (mut times, mut longest, mut which) = (Vec::new(), Vec::new(), String::new());
    for run in 1..=count {
        progress(&format!("{}: {n} schedules, run {run} of {count}", FIRED[0]));
        let took = fire_all(&mut bench.server, n).await?;
        times.push(took.as_secs_f64());
        let (script, us) = bench.server.longest_call(|script| SCRIPTS.contains(&script))?;
        longest.push(us / 1e3);
        which = script;
        bench.server.clean()?;
    }
    let note = "two workers in this process, by the server's clock";
    let times = Row::new(FIRED[0], times, "s").must("≤ 2 s", |value, _| value <= 2.0).note(note);
    let note = format!("the longest call of look and fire on the server, in the last run of {which}");
    Ok([times, Row::new(FIRED[1], longest, "ms").must("≤ 5 ms", |value, _| value <= 5.0).note(note)])
}

/// Fires schedules that are all due at the same time. Returns the time until all jobs were written.
async fn fire_all(server: &mut Server, n: usize) -> Result<Duration> {
    let due = Duration::from_secs(now(server)?.as_secs() + 20);
    let rule = Schedule::every(3_600 * SECOND).from(UNIX_EPOCH + due);
    let apps = [app(server).await?, app(server).await?];
    for app in &apps {
        app.task(TASK, options().concurrency(100), |_: Context, _: String| async { Ok::<(), JobError>(()) })?;
    }
    let schedules = apps[0].task_ref::<String, ()>(TASK)?.schedules();
    for first in (0..n).step_by(TOGETHER) {
        let puts = (first..n.min(first + TOGETHER)).map(|at| {
            let (schedules, rule) = (schedules.clone(), rule.clone());
            async move { schedules.put(&format!("schedule-{at}"), rule, payload(64)).await }
        });
        try_join_all(puts).await?;
    }
    let workers = apps.each_ref().map(|app| app.worker().spawn());
    // The workers need some time to start.
    ensure!(now(server)? + 2 * SECOND < due, "the schedules were not written in time");
    server.log_slow_calls()?;
    until(server, due).await?;
    let meta = server.key(TASK, "meta");
    let took = loop {
        let jobs: Option<usize> = server.ask(&["HGET", &meta, "in"])?;
        let took = now(server)?.saturating_sub(due);
        if jobs.is_some_and(|jobs| jobs >= n) {
            break took;
        }
        ensure!(took < 60 * SECOND, "only {jobs:?} of {n} jobs were written");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    for worker in workers {
        let _ = worker.stop().await?;
    }
    Ok(took)
}

async fn start(bench: &mut Bench) -> Result<[Row; 2]> {
    let (ticks, count) = (bench.size(60).max(20), bench.few_runs(1));
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for run in 1..=count {
        progress(&format!("start after a tick: {ticks} ticks, run {run} of {count}"));
        let (started, mut delays) = unbounded_channel();
        let worker = ticking(&bench.server, Schedule::every(SECOND), &started).await?;
        let mut taken = Vec::with_capacity(ticks);
        // During the first ticks, the worker is still starting.
        for tick in 0..ticks + 2 {
            let delay = tokio::time::timeout(10 * SECOND, delays.recv()).await;
            let delay = delay.context("no tick ran for 10 s")?.context("the worker ended")?;
            if tick >= 2 {
                taken.push(delay);
            }
        }
        let _ = worker.stop().await?;
        p50.push(percentile(&taken, 50));
        p99.push(percentile(&taken, 99));
        bench.server.clean()?;
    }
    let row = |name: &str, values| Row::new(name, values, "ms").must("≤ 50 ms", |value, _| value <= 50.0);
    let note = "due time → start of the handler; the server must be on this machine";
    Ok([row(START[0], p50).note(note), row(START[1], p99).note(note)])
}

/// Starts a worker with one schedule. Its handler sends the time since the tick, in ms.
async fn ticking(server: &Server, rule: Schedule, started: &UnboundedSender<f64>) -> Result<RunningWorker> {
    let (app, started) = (app(server).await?, started.clone());
    let handler = move |ctx: Context, _: String| {
        let due = ctx.tick().map_or(UNIX_EPOCH, |tick| tick.due);
        let sent = started.send(due.elapsed().unwrap_or_default().as_secs_f64() * 1e3);
        async move { sent.map_err(|_| JobError::new("the bench ended").fatal()) }
    };
    app.task(TASK, options(), handler)?.schedule("every-second", rule, payload(64))?;
    Ok(app.worker().spawn())
}

async fn calls(bench: &mut Bench) -> Result<Row> {
    let (count, mut per_tick, mut all) = (bench.few_runs(1), Vec::new(), Vec::new());
    for run in 1..=count {
        progress(&format!("{CALLS}: {TICKS} ticks, run {run} of {count}"));
        let server = &mut bench.server;
        let window = TICKS * SECOND;
        let due = Duration::from_secs(now(server)?.as_secs() + 15) + window;
        let rule = Schedule::every(SECOND).from(UNIX_EPOCH + due).overlap(Overlap::Allow);
        let (started, mut delays) = unbounded_channel();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            workers.push(ticking(server, rule.clone(), &started).await?);
            // Their regular looks are spread evenly, so that each window has as many.
            tokio::time::sleep(LOOK / WORKERS).await;
        }
        ensure!(now(server)? + window + 2 * SECOND < due, "the workers did not start in time");
        until(server, due - window - 2 * SECOND).await?;
        let first = calls_of(&workers);
        until(server, due - 2 * SECOND).await?;
        let without = calls_of(&workers) - first;
        until(server, due - SECOND / 2).await?;
        let first = calls_of(&workers);
        until(server, due - SECOND / 2 + window).await?;
        let with = calls_of(&workers) - first;
        try_join_all(workers.into_iter().map(RunningWorker::stop)).await?;
        all.extend(std::iter::from_fn(|| delays.try_recv().ok()));
        per_tick.push((with as f64 - without as f64) / f64::from(TICKS));
        bench.server.clean()?;
    }
    let (p50, most, ran) = (percentile(&all, 50), percentile(&all, 100), all.len());
    let note =
        format!("look and fire, less those without ticks; {ran} handlers began: p50 {p50:.0} ms, most {most:.0}");
    Ok(Row::new(CALLS, per_tick, "calls").must("≤ 2", |value, _| value <= 2.0).note(note))
}

/// How often this process has looked for ticks and fired them, in all its workers.
fn calls_of(workers: &[RunningWorker]) -> u64 {
    let calls = workers.first().map(|worker| worker.monitor().stats().calls).unwrap_or_default();
    SCRIPTS.iter().filter_map(|script| calls.get(script)).map(|calls| calls.count).sum()
}

/// The server's time since 1970.
fn now(server: &mut Server) -> Result<Duration> {
    let (seconds, micros): (u64, u32) = server.ask(&["TIME"])?;
    Ok(Duration::new(seconds, micros * 1_000))
}

/// Sleeps until this time of the server.
async fn until(server: &mut Server, at: Duration) -> Result<()> {
    let left = at.saturating_sub(now(server)?);
    tokio::time::sleep(left).await;
    Ok(())
}
