//! What it costs to be ready for more than one server: the same work on a cluster of one node, in turn with a server that stands alone.

use std::time::{Duration, Instant};

use anyhow::Result;
use heartline::testing::RedisServer;

use crate::Bench;
use crate::dispatch::{app, payload};
use crate::report::{Row, Runs, progress};
use crate::server::{Counted, Server};
use crate::work::{self, Events, Keep};

/// Rows and their concurrencies.
const LOADS: [(&str, usize, usize); 2] =
    [("cluster_of_one_concurrency_1", 1, 30_000), ("cluster_of_one_concurrency_100", 100, 200_000)];

const DISPATCH: &str = "cluster_of_one_dispatch_one_at_a_time";

pub fn rows() -> Vec<&'static str> {
    LOADS.iter().map(|(name, ..)| *name).chain([DISPATCH]).collect()
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
            let (took, counted) = one_at_a_time(&mut bench.server, n).await?;
            runs.raw(n, took, &counted);
            let (took, counted) = one_at_a_time(&mut cluster, n).await?;
            runs.own(n, took, &counted);
        }
        rows.push(runs.row(DISPATCH).note(NOTE).must("≥ 0.95 of alone", |_, ratio| ratio >= 0.95));
    }
    Ok(rows)
}

const NOTE: &str = "raw: the same on a server that stands alone, in turn with it";

async fn one_at_a_time(server: &mut Server, n: usize) -> Result<(Duration, Counted)> {
    let app = app(server).await?;
    let task = app.task_ref::<String, ()>("one")?;
    task.dispatch(payload(64)).await?;
    let before = server.counted()?;
    let start = Instant::now();
    for _ in 0..n {
        task.dispatch(payload(64)).await?;
    }
    let took = start.elapsed();
    let counted = server.counted()?.since(&before);
    server.clean()?;
    Ok((took, counted))
}
