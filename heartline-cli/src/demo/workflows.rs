//! `demo --workflow` runs 200 graphs of 30 jobs over real files, and kills their workers at random. In one more graph, each job kills its
//! process soon after its handler has returned.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use heartline::{
    App, Context, Graph, Inspector, JobError, Node, StallOptions, TaskDef, TaskOptions, WorkflowHandle,
    WorkflowOptions, WorkflowState,
};
use serde::Serialize;

use super::WORKERS;
use super::crew::Crew;
use super::files::{self, Counted};
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;

const WORKFLOWS: usize = 200;

/// The nodes of a graph: one that lists its files, one for each file, one sum for each 8, the total, and one that runs at the end.
const FILES: usize = 24;
const SUMMED: usize = 8;
const NODES: usize = 1 + FILES + FILES / SUMMED + 1 + 1;

/// How long after the return of its handler a job kills its process, in µs. The process then dies while the outcome is recorded, the
/// workflow is advanced, or the next job is sent or claimed.
const ABORTS: [u64; 10] = [0, 100, 200, 400, 700, 1000, 1500, 2500, 5000, 20_000];

const KILLS: u64 = 20;

/// How long all workflows may take.
const LONGEST: Duration = Duration::from_secs(180);

const LIST: TaskDef<Vec<String>, usize> = TaskDef::new("list");
const COUNT: TaskDef<String, Counted> = TaskDef::new("count");
const SUM: TaskDef<(), Counted> = TaskDef::new("sum");
const NOTE: TaskDef<(), ()> = TaskDef::new("note");
const ABORT: TaskDef<u64, u64> = TaskDef::new("abort");

/// Where runs are recorded outside of Redis: one file for each.
static RECORDS: OnceLock<PathBuf> = OnceLock::new();

/// The last line of the demo.
#[derive(Serialize)]
struct Verdict {
    workflows: usize,
    completed: usize,
    failed: usize,
    /// Workflows that did not end, and nodes without a recorded run.
    lost: usize,
    /// Runs that began twice although their worker lived.
    double_recorded: usize,
    outputs_match: bool,
    /// Worker processes that died.
    killed: usize,
}

fn records(prefix: &str) -> PathBuf {
    std::env::temp_dir().join(prefix)
}

/// Records that a run begins. A run that follows a crash has another stall count.
fn record(ctx: &Context) -> Result<(), JobError> {
    let directory = RECORDS.get().ok_or_else(|| JobError::new("this process has no records"))?;
    let run = format!("{}.{}.{}", ctx.id().as_str().replace('/', "_"), ctx.attempt(), ctx.stalled_count());
    let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(directory.join(name));
    match create(&run) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => drop(create(&format!("{run}.again.{}", ctx.fence()))?),
        created => drop(created?),
    }
    Ok(())
}

/// Declares the tasks of a worker.
pub(super) fn declare(app: &App, prefix: &str) -> Result<(), Failure> {
    RECORDS.get_or_init(|| records(prefix));
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(1000);
    let options = TaskOptions::new().concurrency(16).shutdown_grace(Duration::from_secs(2)).stall(stall);
    app.register(LIST.options(options.clone()).handler(async |ctx: Context, paths: Vec<String>| {
        record(&ctx)?;
        Ok::<_, JobError>(paths.len())
    }))?;
    app.register(COUNT.options(options.clone()).handler(async |ctx: Context, path: String| {
        record(&ctx)?;
        let content = tokio::fs::read(&path).await?;
        // The pause simulates slow input, so that a kill always hits running jobs.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<_, JobError>(files::count(&content))
    }))?;
    app.register(SUM.options(options.clone()).handler(async |ctx: Context, (): ()| {
        record(&ctx)?;
        let mut total = Counted::default();
        for (_, part) in ctx.upstreams::<Counted>().await? {
            total.add(&part?);
        }
        Ok::<_, JobError>(total)
    }))?;
    app.register(NOTE.options(options.clone()).handler(async |ctx: Context, (): ()| record(&ctx)))?;
    app.register(ABORT.options(options).handler(async |ctx: Context, after: u64| {
        record(&ctx)?;
        if ctx.stalled_count() == 0 {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(after));
                // The process ends as by a segmentation fault or the OOM killer.
                std::process::abort();
            });
        }
        Ok::<_, JobError>(after)
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

/// A chain of jobs, each of which kills its process after its end.
fn aborts() -> Graph<u64> {
    let graph = Graph::new();
    let mut last = graph.node("abort-0", &ABORT, ABORTS[0]);
    for (at, after) in ABORTS.into_iter().enumerate().skip(1) {
        last = graph.node(format!("abort-{at}"), &ABORT, after).after(&last);
    }
    graph.output(&last)
}

/// Runs the workflows to their end.
///
/// # Errors
/// A failure if a node was lost or recorded twice, or an output is wrong.
pub(super) async fn run(target: &Target, paths: &[String], out: Output) -> Result<(), Failure> {
    let directory = records(&target.prefix);
    fs::create_dir_all(&directory)?;
    let ended = run_recorded(target, paths, &directory, out).await;
    let _ = fs::remove_dir_all(&directory);
    ended
}

async fn run_recorded(target: &Target, paths: &[String], records: &Path, out: Output) -> Result<(), Failure> {
    let app = target.app().build().await?;
    let flows = app.workflow::<Counted>("count-files", WorkflowOptions::new())?;
    let aborting = app.workflow::<u64>("aborts", WorkflowOptions::new())?;
    let crew = Arc::new(Crew::start(WORKERS, target, &["--workflow"])?);
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let begun = Instant::now();
    let files_of = |number: usize| -> Vec<String> {
        (0..FILES).map(|at| paths[(number * FILES + at) % paths.len()].clone()).collect()
    };
    let mut handles: Vec<WorkflowHandle<Counted>> = Vec::with_capacity(WORKFLOWS);
    for number in 0..WORKFLOWS {
        handles.push(flows.start(count_files(&files_of(number))).id(format!("files-{number}")).await?);
    }
    let line = aborting.start(aborts()).id("line").await?;
    say!(
        "started {WORKFLOWS} workflows of {NODES} nodes, and one in which each of {} jobs kills its process",
        ABORTS.len()
    );
    let is_over = disturb(&app.inspector(), &crew).await?;
    tend.abort();
    let stopped = Arc::clone(&crew);
    tokio::task::spawn_blocking(move || stopped.stop()).await.map_err(std::io::Error::other)?;
    say!("all ended after {:.1} s; {} worker processes died", begun.elapsed().as_secs_f64(), crew.deaths());

    let (mut completed, mut failed, mut lost, mut outputs_match) = (0, 0, 0, true);
    for (number, handle) in handles.iter().enumerate() {
        match handle.status().await?.state {
            WorkflowState::Completed => {
                completed += 1;
                outputs_match &= handle.result().await? == files::count_all(&files_of(number))?;
            }
            WorkflowState::Failed | WorkflowState::Cancelled => failed += 1,
            _ => lost += 1,
        }
    }
    lost += usize::from(line.status().await?.state != WorkflowState::Completed);
    let (nodes, double_recorded) = recorded(records)?;
    lost += (WORKFLOWS * NODES + ABORTS.len()).saturating_sub(nodes);
    let killed = crew.deaths();
    out.json_line(&Verdict { workflows: WORKFLOWS, completed, failed, lost, double_recorded, outputs_match, killed })?;
    match is_over && completed == WORKFLOWS && lost == 0 && double_recorded == 0 && outputs_match {
        true => Ok(()),
        false => Err(Failure::Failed("nodes were lost or ran twice".to_owned())),
    }
}

/// Kills workers until all workflows have ended; `false` if some did not.
async fn disturb(inspector: &Inspector, crew: &Arc<Crew>) -> Result<bool, Failure> {
    let (begun, killing) = (Instant::now(), Arc::clone(crew));
    let killer = tokio::spawn(async move {
        for round in 0..KILLS {
            tokio::time::sleep(Duration::from_millis(300 + 137 * round % 600)).await;
            killing.kill(round as usize);
        }
    });
    for look in 0_u64.. {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let found = inspector.workflows().await?;
        let open = found.iter().filter(|flow| flow.running + flow.paused > 0);
        let open: Vec<String> =
            open.map(|flow| format!("{} of {}", flow.running + flow.paused, flow.workflow)).collect();
        let ended: u64 = found.iter().map(|flow| flow.completed + flow.failed + flow.cancelled).sum();
        if look % 4 == 3 {
            let left = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            say!("{ended:>5} of {} ended   left: {left}   {} worker processes died", WORKFLOWS + 1, crew.deaths());
        }
        if open.is_empty() && killer.is_finished() {
            return Ok(true);
        }
        if begun.elapsed() > LONGEST {
            break;
        }
    }
    killer.abort();
    say!("some workflows did not end in {} s", LONGEST.as_secs());
    Ok(false)
}

/// How many nodes have a recorded run, and how many runs were recorded twice.
fn recorded(directory: &Path) -> Result<(usize, usize), Failure> {
    let (mut nodes, mut twice) = (HashSet::new(), 0);
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(".again.") {
            twice += 1;
        }
        // After the node come its attempt and its stall count.
        nodes.extend(name.split('.').next().map(str::to_owned));
    }
    Ok((nodes.len(), twice))
}
