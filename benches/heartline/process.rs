//! How fast one worker process gets through no-op jobs that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use heartline::{Context, JobError, Retention, StopReason, TaskOptions};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, fill, id, options, payload, per_job, per_job_rows};
use crate::report::{Row, progress};
use crate::server::{Counted, Server};

pub const ROWS: &[&str] = &[
    "process_concurrency_1",
    "process_concurrency_10",
    "process_concurrency_100",
    "process_concurrency_1000",
    "process_concurrency_100_default_retention",
    "process_concurrency_100_commands_per_job",
    "process_concurrency_100_redis_cpu_per_job",
    "process_concurrency_100_script_us_per_job",
    "process_concurrency_100_jobs_per_call",
];

/// The whole life of each job that it is given, six commands a job.
const RAW_LIFE: &str = "
for i = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('LPUSH', KEYS[2], ARGV[i])
end
for i = 1, #ARGV, 2 do
  local id = redis.call('RPOP', KEYS[2])
  redis.call('SADD', KEYS[3], id)
  redis.call('SREM', KEYS[3], id)
  redis.call('HDEL', KEYS[1], id)
end
return 1";

/// The same life by one command a column for the whole batch: what the layout in columns could reach at the most.
const RAW_COLUMNS: &str = "
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('RPUSH', KEYS[2], unpack(ids))
ids = redis.call('LPOP', KEYS[2], #ids)
redis.call('SADD', KEYS[3], unpack(ids))
redis.call('SREM', KEYS[3], unpack(ids))
redis.call('HDEL', KEYS[1], unpack(ids))
return 1";

/// Acknowledges one job and fetches the next: five commands.
const RAW_TURN: &str = "
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
local id = redis.call('LPOP', KEYS[2])
if not id then return false end
redis.call('SADD', KEYS[3], id)
return { id, redis.call('HGET', KEYS[1], id) }";

/// Whether finished jobs stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Default,
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(ROWS[0]) {
        rows.push(concurrency_1(bench).await?);
    }
    if bench.wants(ROWS[1]) {
        rows.push(batched(bench, 10, 60_000, Keep::Nothing, ROWS[1]).await?.remove(0));
    }
    if bench.wants_any(&[ROWS[2], ROWS[5], ROWS[6], ROWS[7], ROWS[8]]) {
        let measured = batched(bench, 100, 200_000, Keep::Nothing, ROWS[2]).await?;
        rows.extend(measured.into_iter().enumerate().map(|(i, row)| match i {
            0 => row.must("≥ 130,000 and ≥ 0.50 of raw", |_, ratio| ratio >= 0.5),
            _ => row,
        }));
    }
    if bench.wants(ROWS[3]) {
        let row = batched(bench, 1_000, 200_000, Keep::Nothing, ROWS[3]).await?.remove(0);
        // 140,000 of the 341,000 that the raw limit reaches on the machine of the budget.
        rows.push(row.must("≥ 140,000, or 0.41 of raw", |value, ratio| value >= 140_000.0 || ratio >= 0.41));
    }
    if bench.wants(ROWS[4]) {
        rows.push(batched(bench, 100, 200_000, Keep::Default, ROWS[4]).await?.remove(0));
    }
    Ok(rows)
}

/// Lets one worker work `n` jobs that wait: the time from its first handler until Redis holds every outcome.
async fn work(bench: &mut Bench, concurrency: usize, n: usize, keep: Keep) -> Result<(Duration, Counted)> {
    let options = match keep {
        Keep::Nothing => options().retention(Retention::none()),
        Keep::Default => TaskOptions::new(),
    };
    let app = app(&bench.server).await?;
    let done = Arc::new(Done::default());
    let seen = Arc::clone(&done);
    let task = app.task("noop", options.concurrency(concurrency), move |_: Context, _: String| {
        seen.count(n);
        async { Ok::<(), JobError>(()) }
    })?;
    fill(&task, n, 64).await?;
    let before = bench.server.counted()?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let worker = app.worker();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    tokio::time::timeout(Duration::from_secs(120), done.all.notified()).await?;
    wait_until_settled(&mut bench.server).await?;
    let took = done.since_first()?;
    let counted = bench.server.counted()?.since(&before);
    stop.cancel();
    let reason = worker.await??;
    ensure!(matches!(reason, StopReason::Shutdown), "the worker ended with {reason:?}");
    let waiting = task.counts().await?;
    let (payloads, completed) = (bench.server.key("noop", "payload"), bench.server.key("noop", "completed"));
    let left: usize = bench.server.ask(&["HLEN", &payloads])?;
    let kept: usize = bench.server.ask(&["ZCARD", &completed])?;
    let expected = if keep == Keep::Nothing { (0, 0) } else { (n, n) };
    ensure!((left, kept) == expected && done.count.load(Ordering::SeqCst) == n, "jobs went astray: {waiting:?}");
    bench.server.clean()?;
    Ok((took, counted))
}

/// Counts runs of the handler.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    first: std::sync::OnceLock<Instant>,
    all: Notify,
}

impl Done {
    fn count(&self, n: usize) {
        self.first.get_or_init(Instant::now);
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == n {
            self.all.notify_one();
        }
    }

    fn since_first(&self) -> Result<Duration> {
        match self.first.get() {
            Some(first) => Ok(first.elapsed()),
            None => bail!("no handler ran"),
        }
    }
}

async fn wait_until_settled(server: &mut Server) -> Result<()> {
    let locks = server.key("noop", "locks");
    for _ in 0..100_000 {
        if server.ask::<usize>(&["HLEN", &locks])? == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    bail!("outcomes were not recorded")
}

/// Calls of a raw script that carry `batch` jobs each. The same ids in each call: it leaves nothing behind.
fn raw_life(server: &mut Server, source: &str, n: usize, batch: usize) -> Result<(Duration, Counted)> {
    let script = server.own_script(source, "raw", &["payload", "wait", "active"])?;
    let mut call = script.call();
    for number in 0..batch {
        call.arg(id(number)).arg(payload(64));
    }
    let packed = vec![call.get_packed_command(); n.div_ceil(batch)];
    let before = server.counted()?;
    let took = server.drive(&packed)?;
    Ok((took, server.counted()?.since(&before)))
}

async fn batched(bench: &mut Bench, concurrency: usize, full: usize, keep: Keep, name: &str) -> Result<Vec<Row>> {
    let (n, runs) = (bench.size(full), bench.runs());
    let (mut rates, mut raw_rates, mut column_rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut counts, mut batches): ([Vec<f64>; 6], Vec<f64>) = Default::default();
    for run in 1..=runs {
        let kept = if keep == Keep::Default { ", default retention" } else { "" };
        progress(&format!("process at concurrency {concurrency}{kept}: {n} jobs, run {run} of {runs}"));
        let (took, own) = work(bench, concurrency, n, keep).await?;
        rates.push(n as f64 / took.as_secs_f64());
        batches.push(n as f64 / own.script_calls());
        let (took, raw) = raw_life(&mut bench.server, RAW_LIFE, n, concurrency)?;
        raw_rates.push(n as f64 / took.as_secs_f64());
        let (took, _) = raw_life(&mut bench.server, RAW_COLUMNS, n, concurrency)?;
        column_rates.push(n as f64 / took.as_secs_f64());
        per_job(&mut counts, &own, &raw, n);
        bench.server.clean()?;
    }
    let columns = crate::report::Stat::of(column_rates).median;
    let row = Row::new(name, rates, "jobs/s").raw(raw_rates).note(format!(
        "raw: whole life, 6 commands a job, {concurrency} jobs an EVALSHA ({columns:.0} with one command a column)"
    ));
    let mut rows = vec![row];
    rows.extend(per_job_rows(name, counts, "the same script, which dispatches too"));
    rows.push(
        Row::new(format!("{name}_jobs_per_call"), batches, "").raw(vec![concurrency as f64]).note("EVALSHA calls"),
    );
    Ok(rows)
}

async fn concurrency_1(bench: &mut Bench) -> Result<Row> {
    let (n, runs) = (bench.size(30_000), bench.runs());
    let (mut rates, mut raw_rates, mut async_rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("process at concurrency 1: {n} jobs, run {run} of {runs}"));
        let (took, _) = work(bench, 1, n, Keep::Nothing).await?;
        rates.push(n as f64 / took.as_secs_f64());

        for blocking in [true, false] {
            let script = bench.server.own_script(RAW_TURN, "raw", &["payload", "wait", "active"])?;
            let mut queue = redis::pipe();
            for number in 0..n {
                queue.hset(bench.server.key("raw", "payload"), id(number), payload(64)).ignore();
                queue.rpush(bench.server.key("raw", "wait"), id(number)).ignore();
            }
            queue.query::<()>(bench.server.conn())?;
            let turns = (0..n).map(|number| {
                let mut call = script.call();
                call.arg(if number == 0 { String::new() } else { id(number - 1) });
                call
            });
            if blocking {
                let packed: Vec<Vec<u8>> = turns.map(|call| call.get_packed_command()).collect();
                raw_rates.push(n as f64 / bench.server.drive(&packed)?.as_secs_f64());
            } else {
                let client = redis::Client::open(bench.server.url.as_str())?;
                let mut conn = client.get_multiplexed_async_connection().await?;
                let start = Instant::now();
                for call in turns {
                    call.query_async::<redis::Value>(&mut conn).await?;
                }
                async_rates.push(n as f64 / start.elapsed().as_secs_f64());
            }
            bench.server.clean()?;
        }
    }
    let async_rate = crate::report::Stat::of(async_rates).median;
    Ok(Row::new(ROWS[0], rates, "jobs/s").raw(raw_rates).must("≥ 0.35 of raw", |_, ratio| ratio >= 0.35).note(format!(
        "raw: ack 1 and fetch 1 an EVALSHA, 5 commands, blocking client (multiplexed client: {async_rate:.0})"
    )))
}
