//! A task with very many running jobs, written without the library. Its scripts are called directly, as workers call
//! them. Only the server's own time counts, measured for each call.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::dispatch::id;
use crate::report::Stat;
use crate::server::{Script, Server, item, items};
use crate::settle::{Claimed, Settle};

const TASK: &str = "running";
const WORKER: &str = "bench-host-4242-0a1b2c3d";
const INTERVAL_MS: u64 = 1_000;
/// The bounds of the worker, as in src/limits.rs.
pub const BEAT_BATCH: usize = 500;
pub const SWEEP_BATCH: usize = 25;
const SHRINK_STEP: usize = 4_000;
/// As in src/keeper/sweep_progress.rs.
const MOST_SHRINKS: usize = 500;
const FIRST_FENCE: u64 = 1_700_000_000_000_000;

/// Running jobs, as settle writes them.
pub const SEED: &str = "
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

/// The minimum that a sweep does with stalled jobs: remove, unlock and requeue them.
const RAW_RESOLVE: &str = "
local scanned = redis.call('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local ids = scanned[2]
if #ids > 0 then
  redis.call('SREM', KEYS[1], unpack(ids))
  redis.call('HDEL', KEYS[2], unpack(ids))
  redis.call('LPUSH', KEYS[3], unpack(ids))
end
return { scanned[1], redis.call('SCARD', KEYS[1]) }";

/// A heartbeat without checks.
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

/// The number of completions that are measured together.
const PART: usize = 100;

/// The time of some calls of one script, in µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub total: f64,
    pub longest: f64,
    pub wall: Duration,
}

impl Spent {
    fn add(&mut self, us: f64, wall: Duration) {
        self.total += us;
        self.longest = self.longest.max(us);
        self.wall += wall;
    }
}

/// A task with many running jobs.
pub struct Running<'a> {
    server: &'a mut Server,
    extend_locks: Script,
    shrink: Script,
    sweep: Script,
    settle: Settle,
    epoch: u64,
}

impl<'a> Running<'a> {
    pub fn seed(server: &'a mut Server, n: usize) -> Result<Running<'a>> {
        server.clean()?;
        let (extend_locks, sweep) = (server.script("extend_locks", TASK)?, server.script("sweep", TASK)?);
        let shrink = server.script("shrink", TASK)?;
        let settle = Settle::new(server, TASK, WORKER, INTERVAL_MS)?;
        let meta = server.key(TASK, "meta");
        // A max_count that no job exceeds, so that each run recovers the same jobs.
        let fields = "wire 1 epoch 1 interval 1000 ask 1000 maxCount 1000000 heartbeat automatic eventMode on \
                      priority normal keepCompleted 0 keepFailed 0 keepCancelled 0";
        let command: Vec<&str> = ["HSET", meta.as_str()].into_iter().chain(fields.split_whitespace()).collect();
        server.ask::<usize>(&command)?;
        let mut running = Running { server, extend_locks, shrink, sweep, settle, epoch: 1 };
        running.start(0, n)?;
        Ok(running)
    }

    /// Writes the jobs as running ones, or again after they have stalled.
    pub fn start(&mut self, first: usize, n: usize) -> Result<()> {
        let script = self.server.own_script(SEED, TASK, &["payload", "locks", "active"])?;
        for jobs in batches(first, n, 2_000) {
            let mut call = script.call();
            call.arg(jobs.start).arg(jobs.end - 1).arg(WORKER).arg(FIRST_FENCE).arg("x".repeat(64));
            call.query::<()>(self.server.conn())?;
        }
        Ok(())
    }

    /// Sends heartbeats for the jobs, as the keeper of their worker does.
    pub fn beat(&mut self, first: usize, n: usize) -> Result<Spent> {
        let mut spent = Spent::default();
        for jobs in batches(first, n, BEAT_BATCH) {
            let mut call = self.extend_locks.call();
            call.arg(WORKER).arg(INTERVAL_MS).arg(jobs.len()).arg(0);
            jobs.clone().for_each(|job| {
                call.arg(id(job));
            });
            jobs.for_each(|job| {
                call.arg(FIRST_FENCE + job as u64);
            });
            let (us, wall, answer) = self.server.timed(&call, "evalsha")?;
            let lost: Vec<u64> = item(&items(answer)?, 3)?;
            ensure!(lost.is_empty(), "a heartbeat lost {} jobs", lost.len());
            spent.add(us, wall);
        }
        Ok(spent)
    }

    fn size(&mut self, suffix: &str) -> Result<usize> {
        let key = self.server.key(TASK, suffix);
        self.server.ask(&["SCARD", &key])
    }

    /// Sweeps until the next snapshot, as a witness does, but with one call at a time. Checks the number of stalled jobs.
    pub fn sweep(&mut self, stalled: usize) -> Result<Spent> {
        let (mut spent, mut cursor, mut resolved) = (Spent::default(), "0".to_owned(), 0);
        let (candidates, active) = (self.size("candidates")?, self.size("active")?);
        if candidates > 0 && candidates * 1_000 < active {
            for _ in 0..active.div_ceil(SHRINK_STEP).min(MOST_SHRINKS) {
                let (us, wall, _) = self.server.timed(&self.shrink.call(), "evalsha")?;
                spent.add(us, wall);
            }
        }
        loop {
            let mut call = self.sweep.call();
            call.arg(WORKER).arg(INTERVAL_MS).arg(self.epoch).arg(INTERVAL_MS).arg(&cursor).arg(SWEEP_BATCH);
            let (us, wall, answer) = self.server.timed(&call, "evalsha")?;
            spent.add(us, wall);
            let answer = items(answer)?;
            let word: String = item(&answer, 0)?;
            ensure!(word == "swept", "a sweep returned {word}");
            self.epoch = item(&answer, 1)?;
            cursor = item(&answer, 3)?;
            resolved += item::<Vec<String>>(&answer, 6)?.len() / 5;
            if item::<u8>(&answer, 4)? == 1 {
                ensure!(resolved == stalled, "{resolved} jobs were found stalled instead of {stalled}");
                return Ok(spent);
            }
        }
    }

    /// Completes jobs one at a time. Returns the server time per job in µs. It is the median of several parts, so that a
    /// short burst of other work on the machine does not matter.
    pub fn complete(&mut self, first: usize, n: usize) -> Result<f64> {
        let mut parts = Vec::new();
        for jobs in batches(first, n, PART) {
            let (before, count) = (self.server.counted()?, jobs.len());
            for job in jobs {
                let done = Claimed { fence: FIRST_FENCE + job as u64, ids: vec![id(job)] };
                self.settle.complete(self.server, &done)?;
            }
            parts.push(self.server.counted()?.since(&before).script_us() / count as f64);
        }
        Ok(Stat::median_of(parts))
    }

    /// The minimum time of a snapshot, which makes all running jobs candidates.
    pub fn raw_snapshot(&mut self) -> Result<f64> {
        let (active, candidates) = (self.server.key(TASK, "active"), self.server.key(TASK, "candidates"));
        let mut rename = redis::cmd("RENAME");
        rename.arg(&active).arg(&candidates);
        Ok(self.server.timed(&rename, "rename")?.0)
    }

    pub fn raw_beat(&mut self, first: usize, n: usize) -> Result<Spent> {
        let beat = self.server.own_script(RAW_BEAT, TASK, &["candidates", "active"])?;
        let mut spent = Spent::default();
        for jobs in batches(first, n, BEAT_BATCH) {
            let mut call = beat.call();
            jobs.for_each(|job| {
                call.arg(id(job));
            });
            let (us, wall, _) = self.server.timed(&call, "evalsha")?;
            spent.add(us, wall);
        }
        Ok(spent)
    }

    /// Resolves candidates until none is left.
    pub fn raw_resolve(&mut self) -> Result<Spent> {
        let resolve = self.server.own_script(RAW_RESOLVE, TASK, &["candidates", "locks", "wait"])?;
        let (mut spent, mut cursor) = (Spent::default(), "0".to_owned());
        loop {
            let mut call = resolve.call();
            call.arg(&cursor).arg(SWEEP_BATCH);
            let (us, wall, answer) = self.server.timed(&call, "evalsha")?;
            spent.add(us, wall);
            let answer = items(answer)?;
            cursor = item(&answer, 0)?;
            if item::<usize>(&answer, 1)? == 0 {
                return Ok(spent);
            }
        }
    }

    pub fn raw_complete(&mut self, first: usize, n: usize) -> Result<f64> {
        let script = self.server.own_script(RAW_COMPLETE, TASK, &["active", "locks", "payload"])?;
        let mut parts = Vec::new();
        for jobs in batches(first, n, PART) {
            let (before, count) = (self.server.counted()?, jobs.len());
            for job in jobs {
                script.call().arg(id(job)).query::<()>(self.server.conn())?;
            }
            parts.push(self.server.counted()?.since(&before).script_us() / count as f64);
        }
        Ok(Stat::median_of(parts))
    }
}

/// The jobs in parts of at most `most`.
fn batches(first: usize, n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (first..first + n).step_by(most).map(move |from| from..(from + most).min(first + n))
}
