//! The demo of workflows: 200 graphs of 30 nodes over real files, with workers that are killed at random, and one more whose jobs take their process down at each
//! step of the way.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heartline::{
    App, Context, Graph, JobError, Node, StallOptions, TaskDef, TaskOptions, WorkflowHandle, WorkflowOptions,
};
use serde::Serialize;

use crate::crew::Crew;
use crate::files;
use crate::servers::Servers;
use crate::tasks::Counted;

const WORKFLOWS: usize = 200;

/// Of each 30 nodes: one that lists its files, one a file, a sum of each 8, the total, and one that notes that it is over.
const FILES: usize = 24;
const SUMMED: usize = 8;
const NODES: usize = 1 + FILES + FILES / SUMMED + 1 + 1;

/// How long after its handler has returned a job takes its process down, us: while its end is written, while its workflow is told, while the next one is
/// sent, while that is claimed.
const ARROWS: [u64; 10] = [0, 100, 200, 400, 700, 1000, 1500, 2500, 5000, 20_000];

/// By when all must have ended.
const PATIENCE: Duration = Duration::from_secs(180);

const LIST: TaskDef<Vec<String>, usize> = TaskDef::new("list");
const COUNT: TaskDef<String, Counted> = TaskDef::new("count");
const SUM: TaskDef<(), Counted> = TaskDef::new("sum");
const NOTE: TaskDef<(), ()> = TaskDef::new("note");
const ARROW: TaskDef<u64, u64> = TaskDef::new("arrow");

/// The last line of the demo.
#[derive(Serialize)]
struct Verdict {
    workflows: usize,
    completed: usize,
    failed: usize,
    /// Workflows that did not end, and nodes of which nobody recorded a run.
    lost: usize,
    /// Runs that began twice, but for those whose worker died with them.
    double_recorded: usize,
    outputs_match: bool,
    /// Worker processes that died.
    killed: usize,
}

/// Where runs are recorded, outside of the queue: a file each.
fn records(prefix: &str) -> PathBuf {
    std::env::temp_dir().join(prefix)
}

/// Records that a run begins; one whose worker died with it says so itself.
fn record(ctx: &Context, directory: &Path) -> Result<(), JobError> {
    let id = ctx.id().as_str().replace('/', "_");
    let run = format!("{id}.{}.{}", ctx.attempt(), ctx.stalled_count());
    let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(directory.join(name));
    match create(&run) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            create(&format!("{run}.again.{}", ctx.fence()))?;
        }
        created => drop(created?),
    }
    Ok(())
}

/// Declares the tasks, the same for the parent and for its workers.
pub fn declare(app: &App, prefix: &str) -> Result<()> {
    let directory: Arc<Path> = records(prefix).into();
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(1000);
    let options = TaskOptions::new().concurrency(16).shutdown_grace(Duration::from_secs(2)).stall(stall);
    let [of_list, of_count, of_sum, of_note, of_arrow] = [(); 5].map(|()| Arc::clone(&directory));
    app.register(LIST.options(options.clone()).handler(move |ctx: Context, paths: Vec<String>| {
        let of = Arc::clone(&of_list);
        async move {
            record(&ctx, &of)?;
            Ok::<_, JobError>(paths.len())
        }
    }))?;
    app.register(COUNT.options(options.clone()).handler(move |ctx: Context, path: String| {
        let of = Arc::clone(&of_count);
        async move {
            record(&ctx, &of)?;
            let content = tokio::fs::read(&path).await?;
            // It stands for slow input, so that a kill always hits running jobs.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, JobError>(files::count(&content))
        }
    }))?;
    app.register(SUM.options(options.clone()).handler(move |ctx: Context, (): ()| {
        let of = Arc::clone(&of_sum);
        async move {
            record(&ctx, &of)?;
            let mut total = Counted::default();
            for (_, part) in ctx.upstreams::<Counted>().await? {
                total.add(&part?);
            }
            Ok::<_, JobError>(total)
        }
    }))?;
    app.register(NOTE.options(options.clone()).handler(move |ctx: Context, (): ()| {
        let of = Arc::clone(&of_note);
        async move { record(&ctx, &of) }
    }))?;
    app.register(ARROW.options(options).handler(move |ctx: Context, after: u64| {
        let of = Arc::clone(&of_arrow);
        async move {
            record(&ctx, &of)?;
            if ctx.stalled_count() == 0 {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(after));
                    // As a segmentation fault or the OOM killer would.
                    std::process::abort();
                });
            }
            Ok::<_, JobError>(after)
        }
    }))?;
    Ok(())
}

fn count_files(paths: &[String]) -> Graph<Counted> {
    let graph = Graph::new();
    let list = graph.node("list", &LIST, paths.to_vec());
    let count = |(at, path): (usize, &String)| graph.node(format!("count-{at}"), &COUNT, path.clone()).after(&list);
    let counts: Vec<Node<Counted>> = paths.iter().enumerate().map(count).collect();
    let sum = |(at, some): (usize, &[Node<Counted>])| graph.node(format!("sum-{at}"), &SUM, ()).after(some);
    let sums: Vec<Node<Counted>> = counts.chunks(SUMMED).enumerate().map(sum).collect();
    let total = graph.node("total", &SUM, ()).after(&sums);
    graph.node("note", &NOTE, ()).after(&total).always();
    graph.output(&total)
}

/// A line of jobs of which each takes its process down behind its end.
fn arrows() -> Graph<u64> {
    let graph = Graph::new();
    let mut last: Option<Node<u64>> = None;
    for (at, after) in ARROWS.into_iter().enumerate() {
        let node = graph.node(format!("arrow-{at}"), &ARROW, after);
        last = Some(match last {
            Some(before) => node.after(&before),
            None => node,
        });
    }
    match last {
        Some(last) => graph.output(&last),
        None => Graph::new().output(&graph.node("none", &ARROW, 0)),
    }
}

/// Runs it. Returns the exit status.
pub async fn demo(directory: Option<PathBuf>) -> Result<ExitCode> {
    let (directory, paths) = files::find(directory, 2500)?;
    println!("{} files of {}", paths.len(), directory.display());
    let (servers, url) = Servers::start(false).await?;
    let prefix = format!("heartline-demo-{}", uuid::Uuid::now_v7());
    println!("on {servers}, keys under {prefix}\n");
    fs::create_dir_all(records(&prefix))?;
    let outcome = run(&url, &prefix, &paths).await;
    let _ = fs::remove_dir_all(records(&prefix));
    outcome
}

async fn run(url: &str, prefix: &str, paths: &[String]) -> Result<ExitCode> {
    let app = App::builder().redis(url).prefix(prefix).build().await?;
    let flows = app.workflow::<Counted>("count-files", WorkflowOptions::new())?;
    let dying = app.workflow::<u64>("arrows", WorkflowOptions::new())?;
    let crew = Arc::new(Crew::start(3, url, &format!("{prefix} workflow"))?);
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let begin = Instant::now();
    let files_of = |number: usize| -> Vec<String> {
        (0..FILES).map(|at| paths[(number * FILES + at) % paths.len()].clone()).collect()
    };
    let mut handles: Vec<WorkflowHandle<Counted>> = Vec::with_capacity(WORKFLOWS);
    for number in 0..WORKFLOWS {
        handles.push(flows.start(count_files(&files_of(number))).id(format!("files-{number}")).await?);
    }
    let line = dying.start(arrows()).id("line").await?;
    println!(
        "{WORKFLOWS} workflows of {NODES} nodes are started, and one whose {} jobs each take their process down",
        ARROWS.len()
    );

    let killer = {
        let crew = Arc::clone(&crew);
        tokio::spawn(async move {
            for round in 0..20_u64 {
                tokio::time::sleep(Duration::from_millis(300 + 137 * round % 600)).await;
                crew.kill(round as usize);
            }
        })
    };
    let inspector = app.inspector();
    let mut told = 0;
    let over = loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let found = inspector.workflows().await?;
        let left: u64 = found.iter().map(|flow| flow.running + flow.paused).sum();
        let ended: u64 = found.iter().map(|flow| flow.completed + flow.failed + flow.cancelled).sum();
        if begin.elapsed().as_secs() / 2 > told {
            told = begin.elapsed().as_secs() / 2;
            println!("{ended:>5} of {} ended   {} worker processes died", WORKFLOWS + 1, crew.deaths());
        }
        if left == 0 && killer.is_finished() {
            break true;
        }
        if begin.elapsed() > PATIENCE {
            println!("some workflows did not end in {} s", PATIENCE.as_secs());
            break false;
        }
    };
    killer.abort();
    tend.abort();
    crew.stop();
    println!("\nall ended after {:.1} s; {} worker processes died\n", begin.elapsed().as_secs_f64(), crew.deaths());

    let (mut completed, mut failed, mut lost, mut outputs_match) = (0, 0, 0, true);
    for (number, handle) in handles.iter().enumerate() {
        match handle.status().await?.state.as_str() {
            "completed" => {
                completed += 1;
                outputs_match &= handle.result().await? == files::count_all(&files_of(number))?;
            }
            "failed" | "cancelled" => failed += 1,
            _ => lost += 1,
        }
    }
    lost += usize::from(line.status().await?.state.as_str() != "completed");
    let (nodes, double_recorded) = recorded(&records(prefix))?;
    lost += (WORKFLOWS * NODES + ARROWS.len()).saturating_sub(nodes);
    let verdict = Verdict {
        workflows: WORKFLOWS,
        completed,
        failed,
        lost,
        double_recorded,
        outputs_match,
        killed: crew.deaths(),
    };
    println!("{nodes} nodes have run, {double_recorded} of them twice without that their worker died\n");
    println!("{}", serde_json::to_string(&verdict)?);
    let is_well = over && completed == WORKFLOWS && lost == 0 && double_recorded == 0 && outputs_match;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many nodes have a recorded run, and how many runs were recorded twice.
fn recorded(directory: &Path) -> Result<(usize, usize)> {
    let (mut nodes, mut twice) = (HashSet::new(), 0);
    for entry in fs::read_dir(directory).context("the records of runs")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(".again.") {
            twice += 1;
        }
        // What stands behind the node is its attempt, and how often it stalled.
        nodes.extend(name.split('.').next().map(str::to_owned));
    }
    Ok((nodes.len(), twice))
}
