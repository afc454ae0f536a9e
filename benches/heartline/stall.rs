//! What beats, sweeps and completions cost the server while very many jobs run. The scripts are called by hand: only
//! the server's own time counts, taken around each single call.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Bench;
use crate::dispatch::id;
use crate::report::{Row, progress};
use crate::server::{Script, Server, item, items};

pub const ROWS: &[&str] = &[
    "sweep_none_stalled",
    "sweep_10_stalled_longest_call",
    "sweep_10_stalled_total",
    "sweep_100k_stalled_longest_call",
    "sweep_100k_stalled_total",
    "beat_per_job",
    "beat_longest_call",
    "complete_one_beside_1k",
    "complete_one_beside_1m",
];

const TASK: &str = "running";
const WORKER: &str = "bench-host-4242-0a1b2c3d";
const INTERVAL_MS: u64 = 1_000;
/// The bounds of the worker: src/store/locks.rs.
const BEAT_BATCH: usize = 500;
const SWEEP_BATCH: usize = 40;
const FIRST_FENCE: usize = 1_700_000_000_000_000;

/// Running jobs, as settle leaves them behind.
const SEED: &str = "
local first, last, worker, fence, payload = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local ids, payloads, locks = {}, {}, {}
for i = first, last do
  local id, at = string.format('bench%017d', i), #ids
  ids[at + 1] = id
  payloads[2 * at + 1], payloads[2 * at + 2] = id, payload
  locks[2 * at + 1], locks[2 * at + 2] = id, string.format('%s:%.0f', worker, fence + i)
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('HSET', KEYS[2], unpack(locks))
redis.call('SADD', KEYS[3], unpack(ids))
return 1";

/// The least that a sweep does with stalled jobs: take them, unlock them, queue them.
const RAW_RESOLVE: &str = "
local scanned = redis.call('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local ids = scanned[2]
if #ids > 0 then
  redis.call('SREM', KEYS[1], unpack(ids))
  redis.call('HDEL', KEYS[2], unpack(ids))
  redis.call('LPUSH', KEYS[3], unpack(ids))
end
return { scanned[1], redis.call('SCARD', KEYS[1]) }";

/// A beat without checks.
const RAW_BEAT: &str = "
redis.call('SREM', KEYS[1], unpack(ARGV))
redis.call('SADD', KEYS[2], unpack(ARGV))
return 1";

/// A completion without checks.
const RAW_COMPLETE: &str = "
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return 1";

/// The time of some calls of one script, in µs.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    total: f64,
    longest: f64,
    wall: Duration,
}

impl Spent {
    fn add(&mut self, us: f64, wall: Duration) {
        self.total += us;
        self.longest = self.longest.max(us);
        self.wall += wall;
    }
}

/// A task with many running jobs.
struct Running<'a> {
    server: &'a mut Server,
    extend_locks: Script,
    sweep: Script,
    settle: Script,
    epoch: u64,
    calls: u64,
}

impl<'a> Running<'a> {
    fn seed(server: &'a mut Server, n: usize) -> Result<Running<'a>> {
        server.clean()?;
        let (extend_locks, sweep, settle) =
            (server.script("extend_locks", TASK)?, server.script("sweep", TASK)?, server.script("settle", TASK)?);
        let meta = server.key(TASK, "meta");
        // A max_count that no job gets past, so that each run finds the same jobs to recover.
        let fields = "wire 1 epoch 1 interval 1000 ask 1000 maxCount 1000000 heartbeat automatic eventMode on \
                      priority normal keepCompleted 0 keepFailed 0 keepCancelled 0";
        let command: Vec<&str> = ["HSET", meta.as_str()].into_iter().chain(fields.split_whitespace()).collect();
        server.ask::<usize>(&command)?;
        let mut running = Running { server, extend_locks, sweep, settle, epoch: 1, calls: 0 };
        running.start(0, n)?;
        Ok(running)
    }

    /// Makes the jobs run (again).
    fn start(&mut self, first: usize, n: usize) -> Result<()> {
        let script = self.server.own_script(SEED, TASK, &["payload", "locks", "active"])?;
        for from in (first..first + n).step_by(2_000) {
            let last = (from + 2_000).min(first + n) - 1;
            let mut call = script.call();
            call.arg(from).arg(last).arg(WORKER).arg(FIRST_FENCE).arg("x".repeat(64));
            call.query::<()>(self.server.conn())?;
        }
        Ok(())
    }

    /// Beats for the jobs, as their worker's keeper does.
    fn beat(&mut self, first: usize, n: usize) -> Result<Spent> {
        let mut spent = Spent::default();
        for from in (first..first + n).step_by(BEAT_BATCH) {
            let jobs = from..(from + BEAT_BATCH).min(first + n);
            let mut call = self.extend_locks.call();
            call.arg(WORKER).arg(INTERVAL_MS).arg(jobs.len()).arg(0);
            jobs.clone().for_each(|job| {
                call.arg(id(job));
            });
            jobs.for_each(|job| {
                call.arg(FIRST_FENCE + job);
            });
            let (us, wall, answer) = self.server.timed(&call, "evalsha")?;
            let lost: Vec<u64> = item(&items(answer)?, 3)?;
            ensure!(lost.is_empty(), "a beat lost {} jobs", lost.len());
            spent.add(us, wall);
        }
        Ok(spent)
    }

    /// Sweeps until the next snapshot is taken, as a witness does. Returns also how many jobs were resolved.
    fn sweep(&mut self) -> Result<(Spent, usize)> {
        let (mut spent, mut cursor, mut resolved) = (Spent::default(), "0".to_owned(), 0);
        loop {
            let mut call = self.sweep.call();
            call.arg(WORKER).arg(INTERVAL_MS).arg(self.epoch).arg(INTERVAL_MS).arg(&cursor).arg(SWEEP_BATCH);
            let (us, wall, answer) = self.server.timed(&call, "evalsha")?;
            spent.add(us, wall);
            let answer = items(answer)?;
            let word: String = item(&answer, 0)?;
            ensure!(word == "swept", "a sweep answered {word}");
            self.epoch = item(&answer, 1)?;
            cursor = item(&answer, 3)?;
            resolved += item::<Vec<String>>(&answer, 5)?.len() / 4;
            if item::<u8>(&answer, 4)? == 1 {
                return Ok((spent, resolved));
            }
        }
    }

    /// Completes jobs one at a time; µs of the server's time a job.
    fn complete(&mut self, first: usize, n: usize) -> Result<f64> {
        let before = self.server.counted()?;
        for job in first..first + n {
            self.calls += 1;
            let mut call = self.settle.call();
            call.arg(self.calls).arg(WORKER).arg(INTERVAL_MS).arg(0).arg(1).arg(0).arg(id(job)).arg(FIRST_FENCE + job);
            let answer: redis::Value = call.query(self.server.conn())?;
            let lost: Vec<u64> = item(&items(answer)?, 1)?;
            ensure!(lost.is_empty(), "a completion was refused");
        }
        Ok(self.server.counted()?.since(&before).script_us() / n as f64)
    }
}

pub fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    tokio::task::block_in_place(|| {
        let mut rows = Vec::new();
        if bench.wants_any(&ROWS[..7]) {
            rows.extend(sweeps(bench)?);
        }
        if bench.wants_any(&ROWS[7..]) {
            rows.extend(completions(bench)?);
        }
        Ok(rows)
    })
}

fn sweeps(bench: &mut Bench) -> Result<Vec<Row>> {
    let (n, dead, runs) = (bench.size(1_000_000), bench.size(100_000), bench.big_runs());
    let few = bench.wants_any(&ROWS[1..3]);
    let many = bench.wants_any(&ROWS[3..5]);
    let mut own: [Vec<f64>; 7] = Default::default();
    let mut raw: [Vec<f64>; 7] = Default::default();
    for run in 1..=runs {
        let step = |what: &str| progress(&format!("{n} running jobs: {what}, run {run} of {runs}"));
        step("seeding");
        let mut running = Running::seed(&mut bench.server, n)?;
        // The first snapshot makes all of them candidates; the beats bring them back.
        running.sweep()?;
        step("beats");
        let beats = running.beat(0, n)?;
        own[5].push(beats.total / n as f64);
        own[6].push(beats.longest);
        step("sweep with none stalled");
        let (spent, resolved) = running.sweep()?;
        ensure!(resolved == 0, "{resolved} jobs that beat were swept");
        own[0].push(spent.longest);
        if few {
            step("10 stalled");
            running.beat(10, n - 10)?;
            let (spent, resolved) = running.sweep()?;
            ensure!(resolved == 10, "{resolved} jobs were found stalled, not 10");
            own[1].push(spent.longest);
            own[2].push(spent.total / 1e3);
            // They run again, and a new snapshot takes them in.
            running.start(0, 10)?;
            running.beat(10, n - 10)?;
            running.sweep()?;
        }
        if many {
            step("100,000 stalled");
            running.beat(dead, n - dead)?;
            let (spent, resolved) = running.sweep()?;
            ensure!(resolved == dead, "{resolved} jobs were found stalled, not {dead}");
            own[3].push(spent.longest);
            own[4].push(spent.wall.as_secs_f64() * 1e3);
        }
        step("raw limits");
        raw_limits(bench, n, dead, (few, many), &mut raw)?;
    }
    let [none, few_longest, few_total, longest, total, beat, beat_longest] = own;
    let [raw_none, raw_few_longest, raw_few_total, raw_longest, raw_total, raw_beat, raw_beat_longest] = raw;
    let mut rows = vec![
        Row::new(ROWS[0], none, "µs").raw(raw_none).must("≤ 1,000 µs", |v, _| v <= 1_000.0).note("raw: RENAME"),
        Row::new(ROWS[5], beat, "µs")
            .raw(raw_beat)
            .must("≤ 3 µs", |v, _| v <= 3.0)
            .note(format!("raw: SREM and SADD of {BEAT_BATCH} ids a call, no checks")),
        Row::new(ROWS[6], beat_longest, "µs").raw(raw_beat_longest).note(format!("{BEAT_BATCH} jobs")),
    ];
    let note = format!("raw: SSCAN, SREM, HDEL, LPUSH of {SWEEP_BATCH} a call, no checks");
    if few {
        rows.push(
            Row::new(ROWS[1], few_longest, "µs")
                .raw(raw_few_longest)
                .must("≤ 1,000 µs", |v, _| v <= 1_000.0)
                .note(note.clone()),
        );
        rows.push(Row::new(ROWS[2], few_total, "ms").raw(raw_few_total).note("server time of all calls"));
    }
    if many {
        rows.push(Row::new(ROWS[3], longest, "µs").raw(raw_longest).must("≤ 5,000 µs", |v, _| v <= 5_000.0).note(note));
        rows.push(
            Row::new(ROWS[4], total, "ms")
                .raw(raw_total)
                .must("≤ 3,000 ms", |v, _| v <= 3_000.0)
                .note(format!("{dead} stalled among {n}, wall time of all calls")),
        );
    }
    rows.sort_by_key(|row| ROWS.iter().position(|name| *name == row.bench));
    Ok(rows)
}

fn raw_limits(
    bench: &mut Bench,
    n: usize,
    dead: usize,
    (few, many): (bool, bool),
    raw: &mut [Vec<f64>; 7],
) -> Result<()> {
    let running = Running::seed(&mut bench.server, n)?;
    let server = running.server;
    let (active, candidates) = (server.key(TASK, "active"), server.key(TASK, "candidates"));
    let mut rename = redis::cmd("RENAME");
    rename.arg(&active).arg(&candidates);
    raw[0].push(server.timed(&rename, "rename")?.0);

    let beat = server.own_script(RAW_BEAT, TASK, &["candidates", "active"])?;
    let mut beat_from = |server: &mut Server, first: usize, note: bool| -> Result<()> {
        let mut spent = Spent::default();
        for from in (first..n).step_by(BEAT_BATCH) {
            let mut call = beat.call();
            (from..(from + BEAT_BATCH).min(n)).for_each(|job| {
                call.arg(id(job));
            });
            let (us, wall, _) = server.timed(&call, "evalsha")?;
            spent.add(us, wall);
        }
        if note {
            raw[5].push(spent.total / (n - first) as f64);
            raw[6].push(spent.longest);
        }
        Ok(())
    };
    beat_from(server, 0, true)?;
    let mut resolved = Vec::new();
    let resolve = server.own_script(RAW_RESOLVE, TASK, &["candidates", "locks", "wait"])?;
    for (stalled, at) in [(10, 1), (dead, 3)] {
        if (at == 1 && !few) || (at == 3 && !many) {
            continue;
        }
        server.ask::<redis::Value>(&["RENAME", &active, &candidates])?;
        beat_from(server, stalled, false)?;
        let (mut spent, mut cursor) = (Spent::default(), "0".to_owned());
        loop {
            let mut call = resolve.call();
            call.arg(&cursor).arg(SWEEP_BATCH);
            let (us, wall, answer) = server.timed(&call, "evalsha")?;
            spent.add(us, wall);
            let answer = items(answer)?;
            cursor = item(&answer, 0)?;
            if item::<usize>(&answer, 1)? == 0 {
                break;
            }
        }
        resolved.push((at, spent));
    }
    for (at, spent) in resolved {
        raw[at].push(spent.longest);
        raw[at + 1].push(if at == 1 { spent.total / 1e3 } else { spent.wall.as_secs_f64() * 1e3 });
    }
    Ok(())
}

fn completions(bench: &mut Bench) -> Result<Vec<Row>> {
    let (n, runs, each) = (bench.size(1_000_000), bench.big_runs(), 500);
    let (mut few, mut many, mut raw_few, mut raw_many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("completing one job beside 1,000 and {n}, run {run} of {runs}"));
        for (count, own, raw) in [(1_000, &mut few, &mut raw_few), (n, &mut many, &mut raw_many)] {
            let mut running = Running::seed(&mut bench.server, count + 2 * each)?;
            own.push(running.complete(0, each)?);
            let server = running.server;
            let script = server.own_script(RAW_COMPLETE, TASK, &["active", "locks", "payload"])?;
            let before = server.counted()?;
            for job in each..2 * each {
                script.call().arg(id(job)).query::<()>(server.conn())?;
            }
            raw.push(server.counted()?.since(&before).script_us() / each as f64);
        }
    }
    let beside = crate::report::Stat::of(few.clone()).median;
    let note = "raw: SREM and two HDEL, no checks";
    Ok(vec![
        Row::new(ROWS[7], few, "µs").raw(raw_few).note(note),
        Row::new(ROWS[8], many, "µs")
            .raw(raw_many)
            .must("≤ 1.5 × beside 1k", move |value, _| value <= 1.5 * beside)
            .note(note),
    ])
}
