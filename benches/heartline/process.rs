//! How fast workers process waiting no-op jobs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Bench;
use crate::child::Spec;
use crate::dispatch::{id, payload};
use crate::report::{Row, Runs, Stat, progress};
use crate::server::{Counted, Server};
use crate::work::{self, Events, Keep, Worked};

/// A row: the jobs, and the workers that process them.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    concurrency: usize,
    jobs: usize,
    bytes: usize,
    keep: Keep,
    events: Events,
    /// The number of worker processes. With 1, the worker runs in the bench itself.
    workers: usize,
    /// The number of prefetched jobs; `None` for the default.
    prefetch: Option<usize>,
    /// Whether the same is measured without prefetch, in turn.
    in_turn: bool,
}

const fn load(name: &'static str, concurrency: usize, jobs: usize) -> Load {
    let (keep, events) = (Keep::Nothing, Events::On);
    Load { name, concurrency, jobs, bytes: 64, keep, events, workers: 1, prefetch: None, in_turn: false }
}

const LOADS: [Load; 17] = [
    load("process_concurrency_1", 1, 30_000),
    load("process_concurrency_10", 10, 60_000),
    load("process_concurrency_100", 100, 200_000),
    load("process_concurrency_1000", 1_000, 200_000),
    Load { workers: 2, ..load("process_concurrency_100_two_workers", 100, 200_000) },
    Load { workers: 2, ..load("process_concurrency_1000_two_workers", 1_000, 200_000) },
    Load { keep: Keep::Default, ..load("process_concurrency_100_default_retention", 100, 100_000) },
    Load { keep: Keep::Result, ..load("process_concurrency_100_with_result", 100, 100_000) },
    Load { bytes: 1024, ..load("process_concurrency_100_1kib", 100, 100_000) },
    Load { bytes: 16 * 1024, ..load("process_concurrency_100_16kib", 100, 10_000) },
    Load { events: Events::Off, ..load("process_concurrency_100_events_off", 100, 100_000) },
    Load { events: Events::Subscribed, ..load("process_concurrency_100_with_subscriber", 100, 100_000) },
    Load { in_turn: true, ..load("default_concurrency_1", 1, 30_000) },
    Load { in_turn: true, ..load("default_concurrency_10", 10, 60_000) },
    Load { in_turn: true, ..load("default_concurrency_100", 100, 200_000) },
    Load { prefetch: Some(50), in_turn: true, ..load("prefetch_50_concurrency_1", 1, 30_000) },
    Load { prefetch: Some(50), in_turn: true, ..load("prefetch_50_concurrency_10", 10, 60_000) },
];

pub fn rows() -> Vec<&'static str> {
    LOADS.iter().map(|load| load.name).collect()
}

/// The whole life of each job, with six commands per job.
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

/// The same with one command per column for the whole batch: the upper limit of the layout in columns.
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
pub const RAW_TURN: &str = "
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
local id = redis.call('LPOP', KEYS[2])
if not id then return false end
redis.call('SADD', KEYS[3], id)
return { id, redis.call('HGET', KEYS[1], id) }";

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for load in LOADS.iter().filter(|load| bench.wants(load.name)).collect::<Vec<_>>() {
        let row = match load {
            Load { in_turn: true, .. } => with_prefetch(bench, load).await?,
            Load { concurrency: 1, .. } => one_at_a_time(bench, load).await?,
            _ => batched(bench, load).await?,
        };
        rows.push(match load.name {
            "process_concurrency_1" => row.must("≥ 0.35 of raw", |_, ratio| ratio >= 0.35),
            "process_concurrency_100" => row.must("≥ 130,000 and ≥ 0.50 of raw", |_, ratio| ratio >= 0.5),
            // On the machine of the budget, the raw limit is 341,000.
            "process_concurrency_1000" => {
                row.must("≥ 140,000, or 0.41 of raw", |value, ratio| value >= 140_000.0 || ratio >= 0.41)
            }
            "default_concurrency_1" => row.must("≥ 3.5 × without prefetch", |_, ratio| ratio >= 3.5),
            "default_concurrency_10" => row.must("≥ 2 × without prefetch", |_, ratio| ratio >= 2.0),
            "prefetch_50_concurrency_1" => row.must("≥ 3 × raw", |_, ratio| ratio >= 3.0),
            "prefetch_50_concurrency_10" => row.must("≥ 2.5 × raw", |_, ratio| ratio >= 2.5),
            _ => row,
        });
    }
    Ok(rows)
}

/// With prefetch and without, in turn.
async fn with_prefetch(bench: &mut Bench, load: &Load) -> Result<Row> {
    let (n, count, mut runs) = (bench.size(load.jobs), bench.runs(), Runs::default());
    for run in 1..=count {
        progress(&format!("{}: {n} jobs, run {run} of {count}", load.name));
        let with = worked(bench, load, n).await?;
        runs.own(n, with.took, &with.counted);
        let without = worked(bench, &Load { prefetch: Some(0), ..*load }, n).await?;
        runs.raw(n, without.took, &without.counted);
    }
    Ok(runs.row(load.name).note("raw: the same without prefetch, in turn"))
}

async fn worked(bench: &mut Bench, load: &Load, n: usize) -> Result<Worked> {
    if load.workers == 1 {
        return work::in_process(bench, (load.concurrency, load.prefetch), (n, load.bytes), load.keep, load.events)
            .await;
    }
    work::in_children(bench, load.workers, &Spec::new(work::TASK, load.concurrency), n).await
}

/// Calls a raw script with `batch` jobs per call. It removes its jobs, so that all calls can use the same ids.
pub fn raw_life(
    server: &mut Server,
    source: &str,
    (n, bytes): (usize, usize),
    batch: usize,
) -> Result<(Duration, Counted)> {
    let script = server.own_script(source, "raw", &["payload", "wait", "active"])?;
    let mut call = script.call();
    for number in 0..batch {
        call.arg(id(number)).arg(payload(bytes));
    }
    let packed = call.get_packed_command();
    server.drive(std::iter::repeat_n(&packed, n.div_ceil(batch)))
}

async fn batched(bench: &mut Bench, load: &Load) -> Result<Row> {
    // The budgets apply to the first four.
    let count = if LOADS[..4].iter().any(|first| first.name == load.name) { bench.runs() } else { bench.few_runs(3) };
    let (n, batch) = (bench.size(load.jobs), load.concurrency);
    let (mut runs, mut column_rates, mut missed) = (Runs::default(), Vec::new(), Vec::new());
    for run in 1..=count {
        progress(&format!("{}: {n} jobs, run {run} of {count}", load.name));
        let worked = worked(bench, load, n).await?;
        runs.own(n, worked.took, &worked.counted);
        let (got, lagged) = worked.events;
        missed.push(lagged as f64 * 100.0 / (got + lagged).max(1) as f64);
        let (took, counted) = raw_life(&mut bench.server, RAW_LIFE, (n, load.bytes), batch)?;
        runs.raw(n, took, &counted);
        let (took, _) = raw_life(&mut bench.server, RAW_COLUMNS, (n, load.bytes), batch)?;
        column_rates.push(n as f64 / took.as_secs_f64());
        bench.server.clean()?;
    }
    let columns = Stat::median_of(column_rates);
    let mut note = format!(
        "raw: whole life, 6 commands per job, {batch} jobs per EVALSHA ({columns:.0} with one command per column)"
    );
    if load.events == Events::Subscribed {
        note.push_str(&format!("; {:.0} % of the events missed", Stat::median_of(missed)));
    }
    Ok(runs.row(load.name).note(note))
}

async fn one_at_a_time(bench: &mut Bench, load: &Load) -> Result<Row> {
    let (n, count) = (bench.size(load.jobs), bench.runs());
    let (mut runs, mut async_rates) = (Runs::default(), Vec::new());
    for run in 1..=count {
        progress(&format!("{}: {n} jobs, run {run} of {count}", load.name));
        let worked = worked(bench, load, n).await?;
        runs.own(n, worked.took, &worked.counted);

        for blocking in [true, false] {
            let script = bench.server.own_script(RAW_TURN, "raw", &["payload", "wait", "active"])?;
            let mut queue = redis::pipe();
            for number in 0..n {
                queue.hset(bench.server.key("raw", "payload"), id(number), payload(load.bytes)).ignore();
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
                let (took, counted) = bench.server.drive(&packed)?;
                runs.raw(n, took, &counted);
            } else {
                let client = redis::Client::open(bench.server.direct.as_str())?;
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
    let async_rate = Stat::median_of(async_rates);
    Ok(runs.row(load.name).note(format!(
        "raw: ack 1 and fetch 1 per EVALSHA, 5 commands, blocking client (multiplexed client: {async_rate:.0})"
    )))
}
