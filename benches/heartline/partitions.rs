//! What it costs to spread a task over partitions, and what it gives: on one server, and on one, two and three primaries of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heartline::testing::RedisServer;
use heartline::{Context, JobError, TaskDef};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, fill, options};
use crate::report::{Row, Runs, Stat, progress, shown};
use crate::server::{Counted, Server};

/// On one server, in turn with one partition.
const ON_ONE: &str = "partitions_4_on_one_server";

/// Three of them, by how many primaries there are.
const ON_MANY: [&str; 3] = ["partitions_3_on_1_primary", "partitions_3_on_2_primaries", "partitions_3_on_3_primaries"];

/// What an idle worker process costs, in turn with one of one partition.
const IDLE: &str = "idle_worker_4_partitions";

/// For how long it is idle.
const IDLE_FOR: Duration = Duration::from_secs(30);

const CONCURRENCY: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn rows() -> Vec<&'static str> {
    [ON_ONE, IDLE].into_iter().chain(ON_MANY).collect()
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(ON_ONE) {
        let (n, count, mut runs) = (bench.size(200_000), bench.runs(), Runs::default());
        for run in 1..=count {
            progress(&format!("{ON_ONE}: {n} jobs, run {run} of {count}"));
            let one = std::slice::from_mut(&mut bench.server);
            let (took, counted) = worked(one, 1, n).await?;
            runs.raw(n, took, &counted[0]);
            let (took, counted) = worked(one, 4, n).await?;
            runs.own(n, took, &counted[0]);
        }
        rows.push(runs.row(ON_ONE).note("raw: the task with one partition, in turn with it"));
    }
    if bench.wants(IDLE) {
        let (count, mut own, mut raw) = (bench.few_runs(3), Vec::new(), Vec::new());
        for run in 1..=count {
            progress(&format!("{IDLE}: {IDLE_FOR:?} each, run {run} of {count}"));
            raw.push(idle(&mut bench.server, 1).await?);
            own.push(idle(&mut bench.server, 4).await?);
        }
        rows.push(Row::new(IDLE, own, "ms/s").raw(raw).note("CPU of the server; raw: one partition"));
    }
    for (primaries, name) in (1..).zip(ON_MANY).filter(|(_, name)| bench.wants(name)) {
        let (nodes, mut servers) = tokio::task::spawn_blocking(move || cluster(primaries)).await??;
        let (n, count) = (bench.size(200_000), bench.runs());
        let (mut busiest, mut shares, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=count {
            progress(&format!("{name}: {n} jobs, run {run} of {count}"));
            let (took, counted) = worked(&mut servers, 3, n).await?;
            let spent: Vec<f64> = counted.iter().map(Counted::cpu_us).collect();
            let most = spent.iter().copied().fold(0.0, f64::max);
            busiest.push(most / n as f64);
            shares.push(100.0 * most / spent.iter().sum::<f64>());
            rates.push(n as f64 / took.as_secs_f64());
        }
        let (share, rate) = (Stat::median_of(shares), shown(Stat::median_of(rates)));
        let note = format!(
            "CPU of the busiest primary, {share:.0} % of all; {rate} jobs/s, with workers on the same two cores"
        );
        let row = Row::new(name, busiest, "µs/job").note(note);
        // Of one and two primaries there is nothing to choose.
        rows.push(if primaries == 3 { row.must("< 40 % of all", move |_, _| share < 40.0) } else { row });
        drop(nodes);
    }
    Ok(rows)
}

/// Primaries without replicas, which have the slots in even ranges.
fn cluster(primaries: usize) -> Result<(Vec<RedisServer>, Vec<Server>)> {
    let start = |_| RedisServer::builder().arg("--cluster-enabled").arg("yes").start();
    let nodes: Vec<RedisServer> = (0..primaries).map(start).collect::<Result<_, _>>()?;
    let url = format!("redis-cluster://127.0.0.1:{}", nodes[0].port());
    let mut servers: Vec<Server> =
        nodes.iter().map(|node| Server::connect_to(&node.url(), &url)).collect::<Result<_>>()?;
    for (at, server) in servers.iter_mut().enumerate() {
        let (from, to) = (16_384 * at / primaries, 16_384 * (at + 1) / primaries - 1);
        let _: String = server.ask(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
        let _: String = server.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
    }
    for node in &nodes[1..] {
        let _: String = servers[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()])?;
    }
    let begun = Instant::now();
    for server in &mut servers {
        while !server.ask::<String>(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
            ensure!(begun.elapsed() < PATIENCE, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok((nodes, servers))
}

/// How many ms of CPU a second an idle worker of a task with so many partitions costs the server.
async fn idle(server: &mut Server, partitions: u32) -> Result<f64> {
    let cost = async |server: &mut Server| {
        let before = server.counted()?;
        tokio::time::sleep(IDLE_FOR).await;
        Ok::<_, anyhow::Error>(server.counted()?.since(&before).cpu_us() / 1000.0 / IDLE_FOR.as_secs_f64())
    };
    let alone = cost(server).await?;
    let app = app(server).await?;
    let def = TaskDef::<String, ()>::new("spread").options(options().partitions(partitions));
    let task = app.register(def.handler(async |_: Context, _: String| Ok::<_, JobError>(())))?;
    let stop = CancellationToken::new();
    let (stopped, worker) = (stop.clone(), app.worker());
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let with = cost(server).await?;
    stop.cancel();
    let _ = worker.await??;
    drop((task, app));
    server.clean()?;
    Ok(with - alone)
}

/// Lets one worker work `n` jobs of a task with so many partitions. What it took, from the first handler to the last outcome, and what each server counted.
async fn worked(servers: &mut [Server], partitions: u32, n: usize) -> Result<(Duration, Vec<Counted>)> {
    let app = app(&servers[0]).await?;
    let (first, count, all) =
        (Arc::new(std::sync::OnceLock::new()), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (begun, ran, rang) = (Arc::clone(&first), Arc::clone(&count), Arc::clone(&all));
    let def = TaskDef::<String, ()>::new("spread").options(options().concurrency(CONCURRENCY).partitions(partitions));
    let task = app.register(def.handler(move |_: Context, _: String| {
        begun.get_or_init(Instant::now);
        if ran.fetch_add(1, Ordering::Relaxed) + 1 == n {
            rang.notify_one();
        }
        async { Ok::<_, JobError>(()) }
    }))?;
    fill(&task, n, 64).await?;
    let before: Vec<Counted> = servers.iter_mut().map(Server::counted).collect::<Result<_>>()?;
    let stop = CancellationToken::new();
    let (stopped, worker) = (stop.clone(), app.worker());
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    tokio::time::timeout(PATIENCE, all.notified()).await?;
    while task.counts().await?.unfinished() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = first.get().context("no handler ran")?.elapsed();
    let mut counted = Vec::with_capacity(servers.len());
    for (server, before) in servers.iter_mut().zip(&before) {
        counted.push(server.counted()?.since(before));
    }
    stop.cancel();
    let _ = worker.await??;
    ensure!(count.load(Ordering::SeqCst) == n, "jobs ran twice");
    drop((task, app));
    servers.iter_mut().try_for_each(Server::clean)?;
    Ok((took, counted))
}
