//! `make bench-instructions`: counts the instructions of the server for fixed calls, and compares them with stored counts.
//!
//! Unlike times, the counts hardly depend on the load of the machine, so CI can bound them. Each row runs on two private
//! servers under callgrind, with n and with 4 n calls after the same set-up. The difference is the cost of 3 n calls.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heartline::_internals::TaskCalls;
use heartline::private_server::{RedisServer, RedisServerBuilder};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::dispatch::{id, payload};
use crate::process::RAW_TURN;
use crate::report::{self, Row, Stat, progress, rounded, say, shown};

/// Runs the server under callgrind.
const CALLGRIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/heartline/callgrind");
const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/heartline/instructions.json");

/// The second server gets this many times the calls of the first.
const TIMES: usize = 4;

/// How much a count may differ from the stored one.
const TOLERANCE: f64 = 0.03;

/// The set-up dispatches jobs in calls of this number, and completes some of them. Then the keys have the encodings of a
/// task that has worked for a while.
const BATCH: usize = 100;

#[derive(Clone, Copy)]
enum Call {
    Ping,
    /// Acknowledges a job and fetches the next, without checks.
    RawTurn,
    /// Reports this number of jobs as completed and claims as many.
    Settle(usize),
    Dispatch(usize),
    /// A heartbeat for this number of jobs.
    ExtendLocks(usize),
}

/// Rows, their calls, and n.
const ROWS: [(&str, Call, usize); 10] = [
    ("ping", Call::Ping, 2_500),
    (RAW, Call::RawTurn, 400),
    ("settle_1", Call::Settle(1), 50),
    ("settle_5", Call::Settle(5), 40),
    ("settle_25", Call::Settle(25), 15),
    ("settle_50", Call::Settle(50), 10),
    ("dispatch_1", Call::Dispatch(1), 100),
    ("dispatch_10", Call::Dispatch(10), 50),
    ("dispatch_100", Call::Dispatch(100), 12),
    ("extend_locks_100", Call::ExtendLocks(100), 25),
];
const RAW: &str = "raw_turn";

/// The rows that show what the server itself costs. They are not compared: a server finds some commands faster than
/// others, by a random seed, and that matters for calls of few commands.
const OF_THE_SERVER: [&str; 2] = ["ping", RAW];

/// How often they are measured.
const RUNS: usize = 3;

/// The size of a payload.
const BYTES: usize = 100;

const PATIENCE: Duration = Duration::from_secs(60);

const WORKER: &str = "bench-host-4242-0a1b2c3d";

/// Few things that depend on time: one tick a second, and no log of slow calls, since all are slow under callgrind.
const SETTINGS: [&str; 8] =
    ["--hz", "1", "--io-threads", "1", "--activerehashing", "no", "--slowlog-log-slower-than", "-1"];

/// The stored counts, and the server for which they hold.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    server: String,
    /// Thousand instructions for each call, by row.
    rows: BTreeMap<String, f64>,
}

pub fn rows() -> Vec<&'static str> {
    ROWS.iter().map(|(name, ..)| *name).collect()
}

pub async fn run(names: &[&str], store: bool) -> Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("missing: valgrind; get it with 'apt-get install valgrind'");
        std::process::exit(2);
    }
    let server = server_name().await?;
    let rows = measure(names).await?;
    println!("instructions a call, on {server}");
    if store {
        std::fs::write(STORED, serde_json::to_string_pretty(&Stored { server, rows })? + "\n")?;
        return Ok(());
    }
    let stored: Stored = serde_json::from_str(&std::fs::read_to_string(STORED)?).context(STORED)?;
    if stored.server != server {
        println!("not compared: the stored counts are of another server, {}", stored.server);
    } else if !are_within(&rows, &stored.rows) {
        std::process::exit(1);
    }
    Ok(())
}

/// Measures the rows and prints them. Returns the thousand instructions a call.
async fn measure(names: &[&str]) -> Result<BTreeMap<String, f64>> {
    let (mut counts, mut table) = (BTreeMap::new(), Vec::new());
    for (name, call, n) in ROWS.into_iter().filter(|(name, ..)| names.contains(name)) {
        let start = Instant::now();
        progress(&format!("{name}: {n} and {} calls", TIMES * n));
        let mut values = Vec::new();
        let runs = if OF_THE_SERVER.contains(&name) { RUNS } else { 1 };
        for _ in 0..runs {
            // Both at the same time: the load does not change the counts.
            let counted = tokio::try_join!(counted(call, n, n), counted(call, n, TIMES * n));
            let (fewer, more) = counted.with_context(|| format!("measuring {name}"))?;
            values.push((more as f64 - fewer as f64) / ((TIMES - 1) * n) as f64 / 1e3);
        }
        say(&format!("measured in {:.0} s", start.elapsed().as_secs_f64()));
        let thousands = Stat::median_of(values.clone());
        let mut row = Row::new(name, values, "k instructions");
        if let Some(raw) = counts.get(RAW) {
            row = row.raw(vec![*raw]);
        }
        report::print_json(std::slice::from_ref(&row))?;
        table.push(row);
        counts.insert(name.to_owned(), rounded(thousands));
    }
    report::print_table(&table)?;
    Ok(counts)
}

/// Compares the counts with the stored ones, and prints what differs. Returns whether no row costs more.
fn are_within(counts: &BTreeMap<String, f64>, stored: &BTreeMap<String, f64>) -> bool {
    let (mut are_within, most) = (true, TOLERANCE * 100.0);
    for (name, count) in counts.iter().filter(|(name, _)| !OF_THE_SERVER.contains(&name.as_str())) {
        let Some(before) = stored.get(name) else {
            println!("{name}: store its count with 'make bench-instructions ARGS=--store'");
            continue;
        };
        let change = (count / before - 1.0) * 100.0;
        let text = format!("{name}: {} k, {change:+.1} % from the stored {} k", shown(*count), shown(*before));
        if change > most {
            are_within = false;
            println!("{text}: FAILED, more than {most:.0} %");
        } else if change < -most {
            println!("{text}: lower the stored count with 'make bench-instructions ARGS=--store'");
        }
    }
    if are_within {
        println!("no row of the crate is more than {most:.0} % above its stored count");
    }
    are_within
}

/// The server's name and version, its compiler, and the architecture. Another build needs other numbers of instructions.
async fn server_name() -> Result<String> {
    let server = tokio::task::spawn_blocking(RedisServer::start).await??;
    let mut conn = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut conn).await?;
    let field = |name: &str| info.get::<String>(name);
    let name = field("server_name").unwrap_or_else(|| "redis".to_owned());
    let version = field("valkey_version").or_else(|| field("redis_version")).unwrap_or_default();
    let gcc = field("gcc_version").unwrap_or_default();
    Ok(format!("{name} {version}, gcc {gcc}, {}", std::env::consts::ARCH))
}

/// The instructions of a server from its start to its end: a set-up for `TIMES * n` calls, and `calls` of them.
async fn counted(call: Call, n: usize, calls: usize) -> Result<u64> {
    let start = || SETTINGS.into_iter().fold(RedisServer::builder().binary(CALLGRIND), RedisServerBuilder::arg).start();
    let mut server = tokio::task::spawn_blocking(start).await??;
    // Under callgrind a call takes about 50 times as long.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(server.url())?;
    let conn = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut caller = Caller { task: TaskCalls::new("bench", "fixed", WORKER)?, conn, dispatched: 0 };
    caller.run(call, n, calls).await?;
    // The server closes the connection instead of a reply.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query_async::<()>(&mut caller.conn).await;
    let asked = Instant::now();
    while server.is_running() {
        ensure!(asked.elapsed() < PATIENCE, "the server does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = server.log();
    let count = log.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.with_context(|| format!("callgrind printed no count:\n{log}"))
}

/// Makes the calls on one connection, for one task.
struct Caller {
    task: TaskCalls,
    conn: MultiplexedConnection,
    dispatched: usize,
}

impl Caller {
    async fn run(&mut self, call: Call, n: usize, calls: usize) -> Result<()> {
        match call {
            Call::Ping => {
                for _ in 0..calls {
                    redis::cmd("PING").query_async::<()>(&mut self.conn).await?;
                }
            }
            Call::RawTurn => self.raw_turns(n, calls).await?,
            Call::Settle(jobs) => {
                self.set_up((TIMES * n + 1) * jobs).await?;
                self.settle(jobs).await?;
                for _ in 0..calls {
                    self.settle(jobs).await?;
                }
            }
            Call::Dispatch(jobs) => {
                self.set_up(BATCH).await?;
                for _ in 0..calls {
                    self.dispatch(jobs).await?;
                }
            }
            Call::ExtendLocks(jobs) => {
                self.set_up(jobs).await?;
                self.settle(jobs).await?;
                for _ in 0..calls {
                    ensure!(self.task.extend_locks(&mut self.conn).await? == 0, "a heartbeat lost jobs");
                }
            }
        }
        Ok(())
    }

    /// Completes some jobs, and leaves `jobs` that wait, or a few more.
    async fn set_up(&mut self, jobs: usize) -> Result<()> {
        self.task.declare(&mut self.conn).await?;
        for _ in 0..jobs.div_ceil(BATCH) + 2 {
            self.dispatch(BATCH).await?;
        }
        for _ in 0..2 {
            self.settle(BATCH).await?;
        }
        self.settle(0).await
    }

    async fn dispatch(&mut self, jobs: usize) -> Result<()> {
        let ids: Vec<String> = (self.dispatched..self.dispatched + jobs).map(id).collect();
        self.dispatched += jobs;
        let payload = serde_json::to_vec(&payload(BYTES))?;
        Ok(self.task.dispatch(&mut self.conn, &ids, &payload).await?)
    }

    async fn settle(&mut self, jobs: usize) -> Result<()> {
        let claimed = self.task.settle(&mut self.conn, jobs).await?;
        ensure!(claimed == Some(jobs), "a settle claimed {claimed:?} instead of {jobs} jobs");
        Ok(())
    }

    async fn raw_turns(&mut self, n: usize, calls: usize) -> Result<()> {
        let (keys, payload) = (["raw:payload", "raw:wait", "raw:active"], payload(BYTES));
        // More jobs than turns, so that the hash does not shrink.
        let ids: Vec<String> = (0..2 * TIMES * n).map(id).collect();
        let pairs: Vec<_> = ids.iter().map(|id| (id, &payload)).collect();
        redis::cmd("HSET").arg(keys[0]).arg(&pairs).query_async::<()>(&mut self.conn).await?;
        redis::cmd("RPUSH").arg(keys[1]).arg(&ids).query_async::<()>(&mut self.conn).await?;
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(RAW_TURN).query_async(&mut self.conn).await?;
        let mut done = String::new();
        for next in &ids[..=calls] {
            let mut turn = redis::cmd("EVALSHA");
            turn.arg(&sha).arg(keys.len()).arg(&keys).arg(&done);
            let (fetched, _): (String, String) = turn.query_async(&mut self.conn).await?;
            ensure!(fetched == *next, "a turn fetched {fetched} instead of {next}");
            done = fetched;
        }
        Ok(())
    }
}
