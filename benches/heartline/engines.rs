//! The cost of clusters and replicas: a cluster of one node compared with a standalone server, dispatches that wait for a
//! replica, and the pause when a primary fails.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heartline::testing::{RedisCluster, RedisServer};
use heartline::{App, Context, Durability, JobError, TaskRef};
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, payload};
use crate::report::{Row, Runs, progress};
use crate::server::{Counted, Server};
use crate::work::{self, Events, Keep};

/// Rows, their concurrencies and their numbers of jobs.
const LOADS: [(&str, usize, usize); 2] =
    [("cluster_of_one_concurrency_1", 1, 30_000), ("cluster_of_one_concurrency_100", 100, 200_000)];

const DISPATCH: &str = "cluster_of_one_dispatch_one_at_a_time";

const REPLICATED: &str = "replicated_1_dispatch_one_at_a_time";

/// How a primary fails.
#[derive(Clone, Copy)]
enum Failure {
    Killed,
    Frozen,
    InOrder,
}

const FAILURES: [(&str, Engine, Failure); 6] = [
    ("resume_cluster_killed", Engine::Cluster, Failure::Killed),
    ("resume_cluster_frozen", Engine::Cluster, Failure::Frozen),
    ("resume_cluster_in_order", Engine::Cluster, Failure::InOrder),
    ("resume_sentinel_killed", Engine::Sentinel, Failure::Killed),
    ("resume_sentinel_frozen", Engine::Sentinel, Failure::Frozen),
    ("resume_sentinel_in_order", Engine::Sentinel, Failure::InOrder),
];

/// What detects the failure of a primary.
#[derive(Clone, Copy)]
enum Engine {
    Cluster,
    Sentinel,
}

pub fn rows() -> Vec<&'static str> {
    let failures = FAILURES.iter().map(|(name, ..)| *name);
    LOADS.iter().map(|(name, ..)| *name).chain([DISPATCH, REPLICATED]).chain(failures).collect()
}

/// Starts a node that has all slots.
fn start() -> Result<(RedisServer, Server)> {
    let node = RedisServer::builder().arg("--cluster-enabled").arg("yes").start()?;
    let url = format!("redis-cluster://127.0.0.1:{}", node.port());
    let mut server = Server::connect_to(&node.url(), &url)?;
    let _: String = server.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
    while !server.ask::<String>(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((node, server))
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let (_node, mut cluster) = start()?;
    let mut rows = Vec::new();
    let loads: Vec<_> = LOADS.into_iter().filter(|(name, ..)| bench.wants(name)).collect();
    for (name, concurrency, jobs) in loads {
        let (n, count, mut runs) = (bench.size(jobs), bench.runs(), Runs::default());
        for run in 1..=count {
            progress(&format!("{name}: {n} jobs, run {run} of {count}"));
            let work = async |bench: &mut Bench| {
                work::in_process(bench, (concurrency, None), (n, 64), Keep::Nothing, Events::On).await
            };
            let alone = work(bench).await?;
            runs.raw(n, alone.took, &alone.counted);
            std::mem::swap(&mut bench.server, &mut cluster);
            let routed = work(bench).await;
            std::mem::swap(&mut bench.server, &mut cluster);
            let routed = routed?;
            runs.own(n, routed.took, &routed.counted);
        }
        rows.push(runs.row(name).note(NOTE).must("≥ 0.95 of raw", |_, ratio| ratio >= 0.95));
    }
    if bench.wants(DISPATCH) {
        let (n, count, mut runs) = (bench.size(20_000), bench.runs(), Runs::default());
        for run in 1..=count {
            progress(&format!("{DISPATCH}: {n} jobs, run {run} of {count}"));
            let (took, counted) = one_at_a_time(&mut bench.server, n, Durability::Memory).await?;
            runs.raw(n, took, &counted);
            let (took, counted) = one_at_a_time(&mut cluster, n, Durability::Memory).await?;
            runs.own(n, took, &counted);
        }
        rows.push(runs.row(DISPATCH).note(NOTE).must("≥ 0.95 of raw", |_, ratio| ratio >= 0.95));
    }
    if bench.wants(REPLICATED) {
        rows.push(replicated(bench).await?);
    }
    for (name, engine, failure) in FAILURES.into_iter().filter(|(name, ..)| bench.wants(name)).collect::<Vec<_>>() {
        let (count, mut gaps, mut promoted) = (bench.few_runs(3), Vec::new(), Vec::new());
        for run in 1..=count {
            progress(&format!("{name}: run {run} of {count}"));
            let (gap, raw) = resume(engine, failure).await?;
            gaps.push(gap.as_secs_f64() * 1e3);
            promoted.push(raw.as_secs_f64() * 1e3);
        }
        let note = "longest time without a completed job; raw: until the replica is a primary (node timeout and down-after 1 s)";
        rows.push(Row::new(name, gaps, "ms").raw(promoted).note(note).must("≤ 4,000 ms", |ms, _| ms <= 4_000.0));
    }
    Ok(rows)
}

/// The cost of waiting for one replica, in turn with dispatches that wait for none, on the same primary.
async fn replicated(bench: &Bench) -> Result<Row> {
    let primary = RedisServer::start()?;
    let follows = RedisServer::builder().arg("--replicaof").arg("127.0.0.1").arg(primary.port().to_string());
    let _replica = follows.arg("--repl-diskless-sync-delay").arg("0").start()?;
    let mut server = Server::connect(&primary.url())?;
    // Wait until the replica acknowledges a write. That it is online is not enough.
    loop {
        let _: String = server.ask(&["SET", "probe", "1"])?;
        if server.ask::<u64>(&["WAIT", "1", "100"])? == 1 {
            break;
        }
    }
    let (n, count, mut runs) = (bench.size(5_000), bench.runs(), Runs::default());
    for run in 1..=count {
        progress(&format!("{REPLICATED}: {n} jobs, run {run} of {count}"));
        let (took, counted) = one_at_a_time(&mut server, n, Durability::Memory).await?;
        runs.raw(n, took, &counted);
        let one = Durability::Replicated { replicas: 1, within: Duration::from_secs(5) };
        let (took, counted) = one_at_a_time(&mut server, n, one).await?;
        runs.own(n, took, &counted);
    }
    Ok(runs.row(REPLICATED).note("raw: without waiting for the replica, on the same primary"))
}

/// The longest time without a completed job when a primary fails, and the time until its replica was promoted.
async fn resume(engine: Engine, failure: Failure) -> Result<(Duration, Duration)> {
    let start = move || match engine {
        Engine::Cluster => Ok(Servers::Cluster(RedisCluster::start()?)),
        Engine::Sentinel => Watched::start().map(|watched| Servers::Watched(Box::new(watched))),
    };
    let mut servers = tokio::task::spawn_blocking(start).await??;
    let app = App::builder().redis(servers.url()).build().await?;
    let task = app.task("resume", crate::dispatch::options(), async |_: Context, _: String| Ok::<_, JobError>(()))?;
    let stop = CancellationToken::new();
    let (stopped, worker) = (stop.clone(), app.worker());
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    done(&task).await?;
    let (primary, replica) = servers.primary_and_replica()?;
    let replica = redis::Client::open(replica)?;
    let begun = Instant::now();
    match failure {
        Failure::Killed => primary.kill(),
        Failure::Frozen => primary.freeze()?,
        Failure::InOrder => servers.fail_over(&replica)?,
    }
    let promoted = tokio::task::spawn_blocking(move || -> Result<Duration> {
        let mut conn = replica.get_connection()?;
        while begun.elapsed() < Duration::from_secs(30) {
            // Sentinels close the connections of the replica that they promote.
            let Ok(role) = redis::cmd("ROLE").query::<Vec<redis::Value>>(&mut conn) else {
                conn = replica.get_connection()?;
                continue;
            };
            if redis::from_redis_value_ref::<String>(&role[0])? == "master" {
                return Ok(begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        anyhow::bail!("the replica was not promoted")
    });
    // Continue for 3 s after the promotion. Then everything works as before.
    let (mut last, mut gap, mut ended) = (begun, Duration::ZERO, None);
    while ended.is_none_or(|ended: Instant| ended.elapsed() < Duration::from_secs(3)) {
        done(&task).await?;
        gap = gap.max(last.elapsed());
        last = Instant::now();
        ended = ended.or_else(|| promoted.is_finished().then_some(last));
    }
    let promoted = promoted.await??;
    ensure!(gap < Duration::from_secs(30), "no job was completed for 30 s");
    stop.cancel();
    let _ = worker.await??;
    Ok((gap, promoted))
}

/// Servers whose primary can fail.
enum Servers {
    Cluster(RedisCluster),
    Watched(Box<Watched>),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Servers::Cluster(cluster) => cluster.url(),
            Servers::Watched(watched) => watched.url(),
        }
    }

    /// The primary that has the task, and the address of its replica.
    fn primary_and_replica(&mut self) -> Result<(&mut RedisServer, String)> {
        match self {
            Servers::Cluster(cluster) => {
                let at = cluster.primary_of("{resume}").context("no node has the slot")?;
                let replica = cluster.nodes[at + 3].url();
                Ok((&mut cluster.nodes[at], replica))
            }
            Servers::Watched(watched) => Ok((&mut watched.primary, watched.replica.url())),
        }
    }

    /// Starts a planned failover to the replica.
    fn fail_over(&self, replica: &redis::Client) -> Result<()> {
        match self {
            Servers::Cluster(_) => Ok(redis::cmd("CLUSTER").arg("FAILOVER").query(&mut replica.get_connection()?)?),
            Servers::Watched(watched) => {
                let mut sentinel = redis::Client::open(format!("redis://127.0.0.1:{}", watched.sentinels[0].port))?
                    .get_connection()?;
                Ok(redis::cmd("SENTINEL").arg("FAILOVER").arg(SERVICE).query(&mut sentinel)?)
            }
        }
    }
}

/// The name of the primary in the configuration of the sentinels.
const SERVICE: &str = "main";

/// A primary with a replica, and three sentinels.
struct Watched {
    primary: RedisServer,
    replica: RedisServer,
    sentinels: Vec<Sentinel>,
}

/// A sentinel process, and the directory of its configuration.
struct Sentinel {
    process: Child,
    port: u16,
    dir: PathBuf,
}

impl Watched {
    fn start() -> Result<Watched> {
        let primary = RedisServer::start()?;
        let follows = RedisServer::builder().arg("--replicaof").arg("127.0.0.1").arg(primary.port().to_string());
        let replica = follows.arg("--repl-diskless-sync-delay").arg("0").start()?;
        let sentinels = (0..3).map(|_| Sentinel::start(primary.port())).collect::<Result<Vec<_>>>()?;
        for sentinel in &sentinels {
            let mut conn = redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.port))?.get_connection()?;
            let knows = |facts: &HashMap<String, String>| {
                ["num-slaves", "num-other-sentinels"].map(|name| facts.get(name).cloned().unwrap_or_default())
                    == ["1", "2"].map(str::to_owned)
            };
            while !knows(&redis::cmd("SENTINEL").arg("MASTER").arg(SERVICE).query(&mut conn)?) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(Watched { primary, replica, sentinels })
    }

    fn url(&self) -> String {
        let nodes = self.sentinels[1..].iter().map(|sentinel| format!("&node=127.0.0.1:{}", sentinel.port));
        let nodes: String = nodes.collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", self.sentinels[0].port)
    }
}

impl Sentinel {
    fn start(primary: u16) -> Result<Sentinel> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let dir = std::env::temp_dir().join(format!("heartline-bench-sentinel-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let file = dir.join("sentinel.conf");
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 6000\n",
            dir.display()
        );
        std::fs::write(&file, config)?;
        let program = std::env::var("HEARTLINE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = std::process::Command::new(program);
        let process = command.arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn()?;
        let sentinel = Sentinel { process, port, dir };
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
        let begun = Instant::now();
        while client.get_connection().is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "a sentinel does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(sentinel)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Dispatches a job and waits until it has completed. Tries again after an error.
async fn done(task: &TaskRef<String, ()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        let tried = async { task.dispatch(payload(64)).await?.result_within(Duration::from_secs(10)).await };
        match tried.await {
            // Completed jobs are not retained.
            Ok(()) | Err(heartline::Error::ResultGone { .. } | heartline::Error::JobNotFound { .. }) => return Ok(()),
            Err(e) if begun.elapsed() > Duration::from_secs(30) => return Err(e.into()),
            Err(_) => {}
        }
    }
}

const NOTE: &str = "raw: the same on a standalone server, in turn";

async fn one_at_a_time(server: &mut Server, n: usize, durability: Durability) -> Result<(Duration, Counted)> {
    let app = app(server).await?;
    let task = app.task_ref::<String, ()>("one")?;
    task.dispatch(payload(64)).await?;
    let before = server.counted()?;
    let start = Instant::now();
    for _ in 0..n {
        task.dispatch(payload(64)).durability(durability).await?;
    }
    let took = start.elapsed();
    let counted = server.counted()?.since(&before);
    server.clean()?;
    Ok((took, counted))
}
