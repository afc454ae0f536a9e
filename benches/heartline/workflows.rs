//! The cost of workflows compared with plain jobs: nodes per second, a hop in a line, and the longest call of the
//! largest graphs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heartline::{App, Context, Graph, JobError, Node, TaskDef, WorkflowOptions, WorkflowStatus};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, fill, options, payload};
use crate::report::{Row, Runs, Stat, percentile, progress};
use crate::server::{Counted, Server};

/// Nodes of one workflow, compared with plain jobs.
const NODES: &str = "workflow_nodes_concurrency_100";

/// The time from the start of a handler to the start of the next one in a line.
const HOP: &str = "workflow_hop_p50";

/// The longest call while the largest graphs run: a line, and a fan-out of one node.
const LINE: &str = "workflow_line_10000";
const FAN: &str = "workflow_fan_10000";

/// The memory of a waiting node.
const BYTES: &str = "workflow_node_bytes";

/// The server time of a call that reports the end of a node, with one instance and with a million.
const ADVANCE: &str = "workflow_advance_beside_1m";

const TASK: TaskDef<String, ()> = TaskDef::new("step");

/// The width of the graphs of [`NODES`]: one node, this many after it, and one after those.
const WIDE: usize = 48;

const CONCURRENCY: usize = 100;
const LARGEST: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(300);

pub fn rows() -> Vec<&'static str> {
    vec![NODES, HOP, LINE, FAN, BYTES, ADVANCE]
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(NODES) {
        let (graphs, count, mut runs) = (bench.size(1_000), bench.few_runs(3), Runs::default());
        let n = graphs * (WIDE + 2);
        for run in 1..=count {
            progress(&format!("{NODES}: {n} nodes, run {run} of {count}"));
            let (took, counted) = plain(&mut bench.server, n).await?;
            runs.raw(n, took, &counted);
            let (took, counted) = nodes(&mut bench.server, graphs).await?;
            runs.own(n, took, &counted);
        }
        let row = runs.row(NODES).note("raw: as many plain jobs, in turn");
        rows.push(row.must("≥ 0.30 of raw", |_, ratio| ratio >= 0.3));
    }
    if bench.wants(HOP) {
        let (hops, count) = (bench.size(2_000).max(300), bench.few_runs(3));
        let (mut p50, mut trips) = (Vec::new(), Vec::new());
        for run in 1..=count {
            progress(&format!("{HOP}: {hops} hops, run {run} of {count}"));
            p50.push(percentile(&hops_of(&mut bench.server, hops).await?, 50));
            trips.push(5.0 * percentile(&pings(&mut bench.server, 300)?, 50));
        }
        let bound = Stat::median_of(trips.clone()) + 100.0;
        let row = Row::new(HOP, p50, "µs").raw(trips).must("≤ raw + 100 µs", |value, _| value <= bound);
        rows.push(row.note("raw: five sequential PINGs, blocking client"));
    }
    for name in [LINE, FAN] {
        if bench.wants(name) {
            let (count, n) = (bench.few_runs(2), bench.size(LARGEST));
            let (mut longest, mut rates, mut which) = (Vec::new(), Vec::new(), String::new());
            for run in 1..=count {
                progress(&format!("{name}: {n} nodes, run {run} of {count}"));
                let ((script, call), took) = largest(&mut bench.server, n, name == LINE).await?;
                longest.push(call);
                which = script;
                rates.push(n as f64 / took.as_secs_f64());
            }
            let rate = Stat::median_of(rates);
            let note = format!("the longest call of the server, in the last run of {which}; {rate:.0} nodes/s");
            rows.push(Row::new(name, longest, "µs").must("≤ 2,000 µs", |value, _| value <= 2_000.0).note(note));
        }
    }
    if bench.wants(BYTES) {
        progress(&format!("{BYTES}: {LARGEST} nodes"));
        let n = bench.size(LARGEST);
        let bytes = node_bytes(&mut bench.server, n).await?;
        rows.push(Row::new(BYTES, vec![bytes], "bytes").must("≤ 260", |value, _| value <= 260.0));
    }
    if bench.wants(ADVANCE) {
        let others = bench.size(1_000_000);
        progress(&format!("{ADVANCE}: {others} instances"));
        let (alone, with_others) = advance_with_others(&mut bench.server, others).await?;
        let row = Row::new(ADVANCE, vec![with_others], "µs").raw(vec![alone]);
        rows.push(row.must("≤ 1.2 × raw", |_, ratio| ratio <= 1.2).note("server time of a call; raw: one instance"));
    }
    Ok(rows)
}

/// Counts the handlers that have begun, with their times. Notifies when all have.
#[derive(Clone, Default)]
struct Begun(Arc<(AtomicUsize, Notify, Mutex<Vec<Instant>>)>);

impl Begun {
    async fn all(&self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.0.1.notified()).await.context("some handlers did not begin")
    }

    fn first(&self) -> Option<Instant> {
        self.0.2.lock().ok()?.first().copied()
    }

    fn times(&self) -> Vec<Instant> {
        self.0.2.lock().map(|times| times.clone()).unwrap_or_default()
    }
}

/// Starts a worker of the task whose handlers are only counted.
fn worker(app: &App, n: usize, concurrency: usize) -> Result<(Begun, impl Future<Output = Result<()>> + Send + use<>)> {
    let begun = Begun::default();
    let counted = begun.clone();
    app.register(TASK.options(options().concurrency(concurrency)).handler(move |_: Context, _: String| {
        let (count, all, times) = &*counted.0;
        if let Ok(mut times) = times.lock() {
            times.push(Instant::now());
        }
        if count.fetch_add(1, Ordering::Relaxed) + 1 == n {
            all.notify_one();
        }
        async { Ok::<_, JobError>(()) }
    }))?;
    let stop = CancellationToken::new();
    let (stopped, worker) = (stop.clone(), app.worker());
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    let end = async move {
        stop.cancel();
        let _ = worker.await??;
        Ok(())
    };
    Ok((begun, end))
}

/// Plain jobs: the time from the first handler to the last outcome.
async fn plain(server: &mut Server, n: usize) -> Result<(Duration, Counted)> {
    let app = app(server).await?;
    let task = app.task_ref_for(&TASK)?;
    fill(&task, n, 64).await?;
    let before = server.counted()?;
    let (begun, end) = worker(&app, n, CONCURRENCY)?;
    begun.all().await?;
    while task.counts().await?.pending_total() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begun.first().context("no handler ran")?.elapsed();
    let counted = server.counted()?.since(&before);
    end.await?;
    drop((task, app));
    server.clean()?;
    Ok((took, counted))
}

fn diamond() -> Graph {
    let graph = Graph::new();
    let first = graph.node("first", &TASK, payload(64));
    let wide: Vec<Node<()>> =
        (0..WIDE).map(|at| graph.node(format!("n-{at}"), &TASK, payload(64)).after(&first)).collect();
    graph.node("last", &TASK, payload(64)).after(&wide);
    graph
}

/// Waits until every instance has ended.
async fn all_ended(app: &App) -> Result<()> {
    let begun = Instant::now();
    loop {
        let flows = app.inspector().workflows().await?;
        if flows.iter().all(|flow| flow.running == 0 && flow.steps == 0) {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "some instances do not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Nodes of graphs that were started before the worker.
async fn nodes(server: &mut Server, graphs: usize) -> Result<(Duration, Counted)> {
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    for _ in 0..graphs {
        flow.start(diamond()).await?;
    }
    let before = server.counted()?;
    let n = graphs * (WIDE + 2);
    let (begun, end) = worker(&app, n, CONCURRENCY)?;
    begun.all().await?;
    all_ended(&app).await?;
    let took = begun.first().context("no handler ran")?.elapsed();
    let counted = server.counted()?.since(&before);
    end.await?;
    ensure!(begun.times().len() == n, "nodes ran twice");
    drop((flow, app));
    server.clean()?;
    Ok((took, counted))
}

fn line(n: usize) -> Graph {
    let graph = Graph::new();
    let mut last = graph.node("n-0", &TASK, payload(64));
    for at in 1..n {
        last = graph.node(format!("n-{at}"), &TASK, payload(64)).after(&last);
    }
    graph
}

fn fan(n: usize) -> Graph {
    let graph = Graph::new();
    let first = graph.node("n-0", &TASK, payload(64));
    for at in 1..n {
        graph.node(format!("n-{at}"), &TASK, payload(64)).after(&first);
    }
    graph
}

/// The times between the starts of handlers in a line, in µs.
async fn hops_of(server: &mut Server, hops: usize) -> Result<Vec<f64>> {
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    let (begun, end) = worker(&app, hops + 1, 1)?;
    flow.start(line(hops + 1)).await?;
    begun.all().await?;
    all_ended(&app).await?;
    end.await?;
    let times = begun.times();
    let between = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64() * 1e6);
    drop((flow, app));
    server.clean()?;
    Ok(between.collect())
}

fn pings(server: &mut Server, count: usize) -> Result<Vec<f64>> {
    tokio::task::block_in_place(|| {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            std::thread::sleep(Duration::from_millis(1));
            let begun = Instant::now();
            server.ask::<String>(&["PING"])?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    })
}

/// Starts a graph and runs it to its end. Returns the longest call of the server (script and µs), and the total time.
async fn largest(server: &mut Server, n: usize, is_line: bool) -> Result<((String, f64), Duration)> {
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    server.log_slow_calls()?;
    let begun = Instant::now();
    let handle = flow.start(if is_line { line(n) } else { fan(n) }).await?;
    let (all, end) = worker(&app, n, CONCURRENCY)?;
    all.all().await?;
    all_ended(&app).await?;
    let took = begun.elapsed();
    let WorkflowStatus { unfinished, .. } = handle.status().await?;
    ensure!(unfinished == 0, "the graph did not end");
    end.await?;
    let longest = server.longest_call(|_| true)?;
    drop((flow, app));
    server.clean()?;
    Ok((longest, took))
}

/// The memory of a waiting node with a payload of 64 bytes.
async fn node_bytes(server: &mut Server, n: usize) -> Result<f64> {
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    // Instances with the same shape share its records, so that the first one is not measured.
    flow.start(line(n)).id("first").await?;
    let before = server.used_memory()?;
    flow.start(line(n)).id("other").await?;
    let bytes = (server.used_memory()? - before) / n as f64;
    drop((flow, app));
    server.clean()?;
    Ok(bytes)
}

/// The server time of a call that reports the end of a node, in µs: with one instance, and with others.
async fn advance_with_others(server: &mut Server, others: usize) -> Result<(f64, f64)> {
    let alone = advance_us(server).await?;
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    let handle = flow.start(diamond()).id("one").await?;
    let head = server.key("bench:flow", "instances");
    let known: String = server.ask(&["HGET", &head, handle.id()])?;
    let keys = ["instances", "nodes", "running"].map(|name| server.key("bench:flow", name));
    for from in (0..others).step_by(1000) {
        let mut pipe = redis::pipe();
        for at in from..(from + 1000).min(others) {
            pipe.hset(&keys[0], format!("other-{at}"), &known).ignore();
            pipe.hset(&keys[1], format!("other-{at}/0"), "o").ignore();
            // As if they had just advanced, so that no audit reads them.
            pipe.zadd(&keys[2], format!("other-{at}"), "9000000000000").ignore();
        }
        tokio::task::block_in_place(|| pipe.query::<()>(server.conn()))?;
    }
    let with = advance_us(server).await?;
    drop((flow, app));
    server.clean()?;
    Ok((alone, with))
}

/// The server time of a call that reports the end of a node and opens the next one, in µs: the mean of 2,000 calls.
async fn advance_us(server: &mut Server) -> Result<f64> {
    const CALLS: usize = 2_000;
    let app = app(server).await?;
    let flow = app.workflow::<()>("bench", WorkflowOptions::new())?;
    let id = format!("line-{}", uuid::Uuid::now_v7());
    flow.start(line(CALLS + 1)).id(&id).await?;
    let advance = server.script("flow_advance", "bench:flow")?;
    let before = server.counted()?;
    for at in 0..CALLS {
        let mut call = advance.call();
        call.arg(&id).arg(at).arg(1).arg("c").arg("");
        tokio::task::block_in_place(|| call.query::<redis::Value>(server.conn()))?;
    }
    let counted = server.counted()?.since(&before);
    Ok(counted.script_us() / CALLS as f64)
}
