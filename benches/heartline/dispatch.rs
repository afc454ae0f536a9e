//! How fast jobs are dispatched: in bulk, by many tasks at once, and one at a time.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use heartline::{App, EventMode, Retention, TaskOptions, TaskRef, Unique};
use redis::Cmd;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};

use crate::Bench;
use crate::report::{Row, Runs, Stat, progress};
use crate::server::{Script, Server};

pub const ROWS: &[&str] =
    &["dispatch_bulk", "dispatch_100_concurrent", "dispatch_one_at_a_time", "dispatch_unique_one_at_a_time"];

/// Writes and queues jobs, without checks and events.
const RAW_BULK: &str = "
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('RPUSH', KEYS[2], unpack(ids))
return #ids";

/// The same writes as dispatch.lua for one job, without a check.
const RAW_ONE: &str = "
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[1])
local total = redis.call('HINCRBY', KEYS[3], 'events', 1)
redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'total', total, 'worker', '', 'dispatched', ARGV[1])
redis.call('ZADD', KEYS[5], 0, 'marker')
return 1";

/// Jobs per call of the raw script, as many as `dispatch_many` sends in one call.
const BULK_BATCH: usize = 200;
/// Jobs passed to each call of `dispatch_many`.
const BULK_GIVEN: usize = 10_000;
const TASKS: usize = 100;

/// A text that takes `bytes` as JSON.
pub fn payload(bytes: usize) -> String {
    "x".repeat(bytes.saturating_sub(2))
}

/// An id as long as a generated one.
pub fn id(number: usize) -> String {
    format!("bench{number:017}")
}

pub async fn app(server: &Server) -> Result<App> {
    Ok(App::builder().redis(&server.url).prefix(&server.prefix).build().await?)
}

/// Dispatches `n` jobs in bulk. The inputs are created before the clock starts.
pub async fn fill<O>(task: &TaskRef<String, O>, n: usize, bytes: usize) -> Result<Duration> {
    let mut batches = Vec::new();
    for first in (0..n).step_by(BULK_GIVEN) {
        batches.push(vec![payload(bytes); BULK_GIVEN.min(n - first)]);
    }
    let start = Instant::now();
    for batch in batches {
        task.dispatch_many(batch).await?;
    }
    Ok(start.elapsed())
}

/// The options of every measured task: the defaults, without retention.
pub fn options() -> TaskOptions {
    TaskOptions::new().retention(Retention::remove_at_once()).events(EventMode::On)
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(ROWS[0]) {
        rows.push(bulk(bench).await?);
    }
    if bench.wants(ROWS[1]) {
        rows.push(concurrent(bench).await?);
    }
    if bench.wants(ROWS[2]) {
        rows.push(one_at_a_time(bench).await?);
    }
    if bench.wants(ROWS[3]) {
        rows.push(unique_one_at_a_time(bench).await?);
    }
    Ok(rows)
}

async fn bulk(bench: &mut Bench) -> Result<Row> {
    let (n, count) = (bench.size(200_000), bench.runs());
    let mut runs = Runs::default();
    for run in 1..=count {
        progress(&format!("dispatch in bulk: {n} jobs, run {run} of {count}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>("bulk")?;
        // Connect before the clock starts.
        fill(&task, 1, 64).await?;
        let before = bench.server.counted()?;
        let took = fill(&task, n, 64).await?;
        runs.own(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;

        let script = bench.server.own_script(RAW_BULK, "raw", &["payload", "wait"])?;
        let packed: Vec<Vec<u8>> = (0..n)
            .step_by(BULK_BATCH)
            .map(|first| {
                let mut call = script.call();
                for number in first..(first + BULK_BATCH).min(n) {
                    call.arg(id(number)).arg(payload(64));
                }
                call.get_packed_command()
            })
            .collect();
        let (took, counted) = bench.server.drive(&packed)?;
        runs.raw(n, took, &counted);
        bench.server.clean()?;
    }
    let note = format!("raw: HSET and RPUSH of {BULK_BATCH} jobs per EVALSHA, no checks");
    Ok(runs.row(ROWS[0]).must("≥ 300,000", |value, _| value >= 300_000.0).note(note))
}

/// A call that dispatches one job.
pub fn one(script: &Script, number: usize) -> Cmd {
    let mut call = script.call();
    call.arg(id(number)).arg(payload(64));
    call
}

/// The script that writes one job and sets the marker, without checks.
pub fn raw_one(server: &mut Server) -> Result<Script> {
    server.own_script(RAW_ONE, "raw", &["payload", "wait", "meta", "events", "wake"])
}

async fn multiplexed(server: &Server) -> Result<MultiplexedConnection> {
    Ok(redis::Client::open(server.direct.as_str())?.get_multiplexed_async_connection().await?)
}

async fn concurrent(bench: &mut Bench) -> Result<Row> {
    let (each, count) = (bench.size(1_000), bench.runs());
    let n = each * TASKS;
    let mut runs = Runs::default();
    for run in 1..=count {
        progress(&format!("dispatch from {TASKS} tasks: {each} jobs each, run {run} of {count}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>("concurrent")?;
        fill(&task, 1, 64).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        let tasks = (0..TASKS).map(|_| {
            let task = task.clone();
            async move {
                tokio::spawn(async move {
                    for _ in 0..each {
                        task.dispatch(payload(64)).await?;
                    }
                    anyhow::Ok(())
                })
                .await?
            }
        });
        try_join_all(tasks).await?;
        let took = start.elapsed();
        runs.own(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;

        let script = raw_one(&mut bench.server)?;
        let conn = multiplexed(&bench.server).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        let tasks = (0..TASKS).map(|task| {
            let (script, mut conn) = (script.clone(), conn.clone());
            async move {
                tokio::spawn(async move {
                    for number in 0..each {
                        conn.req_packed_command(&one(&script, task * each + number)).await?.extract_error()?;
                    }
                    anyhow::Ok(())
                })
                .await?
            }
        });
        try_join_all(tasks).await?;
        let took = start.elapsed();
        runs.raw(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;
    }
    Ok(runs
        .row(ROWS[1])
        .must("≥ 80,000", |value, _| value >= 80_000.0)
        .note("raw: as many tasks, with one EVALSHA per job on one multiplexed connection"))
}

async fn one_at_a_time(bench: &mut Bench) -> Result<Row> {
    let (n, count) = (bench.size(20_000), bench.runs());
    let (mut runs, mut blocking_rates) = (Runs::default(), Vec::new());
    for run in 1..=count {
        progress(&format!("dispatch one at a time: {n} jobs, run {run} of {count}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>("one")?;
        fill(&task, 1, 64).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        for _ in 0..n {
            task.dispatch(payload(64)).await?;
        }
        let took = start.elapsed();
        runs.own(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;

        let script = raw_one(&mut bench.server)?;
        let mut conn = multiplexed(&bench.server).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        for number in 0..n {
            conn.req_packed_command(&one(&script, number)).await?.extract_error()?;
        }
        let took = start.elapsed();
        runs.raw(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;

        let packed: Vec<Vec<u8>> = (0..n).map(|number| one(&script, number).get_packed_command()).collect();
        blocking_rates.push(n as f64 / bench.server.drive(&packed)?.0.as_secs_f64());
        bench.server.clean()?;
    }
    let blocking = Stat::median_of(blocking_rates);
    Ok(runs.row(ROWS[2]).must("≥ 0.85 of raw", |_, ratio| ratio >= 0.85).note(format!(
        "raw: EVALSHA of the same 5 writes without checks, same client (a blocking client reaches {blocking:.0})"
    )))
}

/// Dispatches with a unique key each, next to plain dispatches.
async fn unique_one_at_a_time(bench: &mut Bench) -> Result<Row> {
    let (n, count) = (bench.size(20_000), bench.runs());
    let mut runs = Runs::default();
    for run in 1..=count {
        progress(&format!("unique dispatch one at a time: {n} jobs, run {run} of {count}"));
        let task = app(&bench.server).await?.task_ref::<String, ()>("unique")?;
        fill(&task, 1, 64).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        for number in 0..n {
            task.dispatch(payload(64)).unique(Unique::by(id(number))).await?;
        }
        let took = start.elapsed();
        runs.own(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;

        let task = app(&bench.server).await?.task_ref::<String, ()>("plain")?;
        fill(&task, 1, 64).await?;
        let before = bench.server.counted()?;
        let start = Instant::now();
        for _ in 0..n {
            task.dispatch(payload(64)).await?;
        }
        let took = start.elapsed();
        runs.raw(n, took, &bench.server.counted()?.since(&before));
        bench.server.clean()?;
    }
    let note = "raw: dispatches without a key, by the same client";
    Ok(runs.row(ROWS[3]).must("≥ 0.30 of raw", |_, ratio| ratio >= 0.30).note(note))
}
