//! What it costs to be ready for more than one server: the same work on a cluster of one node, in turn with a server that stands alone; what
//! waiting for a replica costs; and for how long nothing is done when a primary of a cluster fails.

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

/// Rows and their concurrencies.
const LOADS: [(&str, usize, usize); 2] =
    [("cluster_of_one_concurrency_1", 1, 30_000), ("cluster_of_one_concurrency_100", 100, 200_000)];

const DISPATCH: &str = "cluster_of_one_dispatch_one_at_a_time";

const REPLICATED: &str = "replicated_1_dispatch_one_at_a_time";

/// What becomes of a primary, and the row that tells of it.
#[derive(Clone, Copy)]
enum Failure {
    Killed,
    Frozen,
    InOrder,
}

const FAILURES: [(&str, Failure); 3] = [
    ("resume_cluster_killed", Failure::Killed),
    ("resume_cluster_frozen", Failure::Frozen),
    ("resume_cluster_in_order", Failure::InOrder),
];

pub fn rows() -> Vec<&'static str> {
    let failures = FAILURES.iter().map(|(name, _)| *name);
    LOADS.iter().map(|(name, ..)| *name).chain([DISPATCH, REPLICATED]).chain(failures).collect()
}

/// A node that has all slots.
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
                work::in_process(bench, (concurrency, 0), (n, 64), Keep::Nothing, Events::On).await
            };
            let alone = work(bench).await?;
            runs.raw(n, alone.took, &alone.counted);
            std::mem::swap(&mut bench.server, &mut cluster);
            let routed = work(bench).await;
            std::mem::swap(&mut bench.server, &mut cluster);
            let routed = routed?;
            runs.own(n, routed.took, &routed.counted);
        }
        rows.push(runs.row(name).note(NOTE).must("≥ 0.95 of alone", |_, ratio| ratio >= 0.95));
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
        rows.push(runs.row(DISPATCH).note(NOTE).must("≥ 0.95 of alone", |_, ratio| ratio >= 0.95));
    }
    if bench.wants(REPLICATED) {
        rows.push(replicated(bench).await?);
    }
    for (name, failure) in FAILURES.into_iter().filter(|(name, _)| bench.wants(name)).collect::<Vec<_>>() {
        let (count, mut gaps, mut promoted) = (bench.few_runs(3), Vec::new(), Vec::new());
        for run in 1..=count {
            progress(&format!("{name}: run {run} of {count}"));
            let (gap, raw) = resume(failure).await?;
            gaps.push(gap.as_secs_f64() * 1e3);
            promoted.push(raw.as_secs_f64() * 1e3);
        }
        let note =
            "longest time without a job done; raw: until the replica says that it is a primary (node timeout 1 s)";
        rows.push(Row::new(name, gaps, "ms").raw(promoted).note(note).must("≤ 4,000 ms", |ms, _| ms <= 4_000.0));
    }
    Ok(rows)
}

/// The price of one replica: in turn with dispatches that wait for none, on the same primary.
async fn replicated(bench: &Bench) -> Result<Row> {
    let primary = RedisServer::start()?;
    let follows = RedisServer::builder().arg("--replicaof").arg("127.0.0.1").arg(primary.port().to_string());
    let _replica = follows.arg("--repl-diskless-sync-delay").arg("0").start()?;
    let mut server = Server::connect(&primary.url())?;
    // An acknowledgement of its own, and not only that it is online.
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

/// How long nothing is done when a primary fails, and when its replica had taken its place.
async fn resume(failure: Failure) -> Result<(Duration, Duration)> {
    let mut cluster = tokio::task::spawn_blocking(RedisCluster::start).await??;
    let app = App::builder().redis(cluster.url()).build().await?;
    let task = app.task("resume", crate::dispatch::options(), async |_: Context, _: String| Ok::<_, JobError>(()))?;
    let stop = CancellationToken::new();
    let (stopped, worker) = (stop.clone(), app.worker());
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    done(&task).await?;
    let at = cluster.primary_of("{resume}").context("no node has the slot")?;
    let heir = redis::Client::open(cluster.nodes[at + 3].url())?;
    let begun = Instant::now();
    match failure {
        Failure::Killed => cluster.nodes[at].kill(),
        Failure::Frozen => cluster.nodes[at].freeze()?,
        Failure::InOrder => redis::cmd("CLUSTER").arg("FAILOVER").query(&mut heir.get_connection()?)?,
    }
    let promoted = tokio::task::spawn_blocking(move || -> Result<Duration> {
        let mut conn = heir.get_connection()?;
        while begun.elapsed() < Duration::from_secs(30) {
            let role: Vec<redis::Value> = redis::cmd("ROLE").query(&mut conn)?;
            if redis::from_redis_value_ref::<String>(&role[0])? == "master" {
                return Ok(begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        anyhow::bail!("the replica was not promoted")
    });
    // For some time behind the promotion: all is as before by then.
    let (mut last, mut gap, mut ended) = (begun, Duration::ZERO, None);
    while ended.is_none_or(|ended: Instant| ended.elapsed() < Duration::from_secs(3)) {
        done(&task).await?;
        gap = gap.max(last.elapsed());
        last = Instant::now();
        ended = ended.or_else(|| promoted.is_finished().then_some(last));
    }
    let promoted = promoted.await??;
    ensure!(gap < Duration::from_secs(30), "it did not resume");
    stop.cancel();
    let _ = worker.await??;
    Ok((gap, promoted))
}

/// Waits until a job is done that is dispatched now, however often that takes another try.
async fn done(task: &TaskRef<String, ()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        let tried = async { task.dispatch(payload(64)).await?.result_within(Duration::from_secs(10)).await };
        match tried.await {
            // Nothing is kept of what is done.
            Ok(()) | Err(heartline::Error::ResultGone { .. } | heartline::Error::JobNotFound { .. }) => return Ok(()),
            Err(e) if begun.elapsed() > Duration::from_secs(30) => return Err(e.into()),
            Err(_) => {}
        }
    }
}

const NOTE: &str = "raw: the same on a server that stands alone, in turn with it";

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
