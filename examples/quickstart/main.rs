//! The demo: indexes a real directory tree while its workers are killed, and shows that no job gets lost.
//!
//! `make demo`, or `cargo run --example quickstart -- --help`. It starts a private redis-server unless `REDIS_URL` is
//! set. Three worker processes run one job for each file; the parent kills them with SIGKILL while they hold jobs, starts
//! them again, freezes one for three intervals, lets a poison job take its process down, and cancels a job whose worker
//! is being killed. At the end it checks the totals against a direct count of the same files. With `--cluster` it does so on a private
//! Redis Cluster, and kills a primary as well. With `--workflow` it runs 200 graphs of 30 jobs instead.

mod crew;
mod files;
mod flows;
mod report;
mod servers;
mod tasks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use clap::Parser;
use heartline::{App, Event, JobState};

use crew::Crew;
use report::{Account, Tally, may_be_lost};
use servers::Servers;
use tasks::Counted;

/// Index a directory tree with workers that keep dying.
#[derive(Parser)]
struct Arguments {
    /// The directory to index. Defaults to the unpacked crate sources of this machine.
    directory: Option<PathBuf>,
    /// The most files to take.
    #[arg(long, default_value_t = 2500)]
    files: usize,
    /// Show the web page of what was done, until Ctrl-C (`make demo ARGS=--board` builds what serves it).
    #[arg(long)]
    board: bool,
    /// Run on a private cluster of three primaries and their replicas, and kill a primary too (needs Redis 7.0 or Valkey).
    #[arg(long)]
    cluster: bool,
    /// Run workflows: 200 graphs of 30 jobs, and one that dies at each step of its way.
    #[arg(long, conflicts_with_all = ["cluster", "board"])]
    workflow: bool,
    /// Work as one of the demo's workers under this prefix, on the Redis of REDIS_URL (used by the demo itself).
    #[arg(long, hide = true)]
    worker: Option<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(prefix) = &arguments.worker {
        tasks::work(&std::env::var("REDIS_URL")?, prefix).await?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        outcome = async { if arguments.workflow { flows::demo(arguments.directory).await } else { demo(arguments).await } } => outcome,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nstopped; the workers are stopped too, and their jobs stay in Redis for the next worker");
            Ok(ExitCode::from(130))
        }
    }
}

/// Serves the web page, by the command line of Heartline, which is built beside this program.
async fn show(url: &str, prefix: &str) -> Result<()> {
    let here = std::env::current_exe()?;
    let program = here.parent().and_then(Path::parent).context("where this program is")?.join("heartline");
    let mut board = tokio::process::Command::new(&program);
    board.args(["board", "--name", "demo"]).env("HEARTLINE_URL", url).env("HEARTLINE_PREFIX", prefix);
    let what = || format!("{} could not be started: `cargo build -p heartline-cli` builds it", program.display());
    board.kill_on_drop(true).spawn().with_context(what)?.wait().await?;
    Ok(())
}

/// Asks again while a primary is away.
async fn patiently<T>(ask: impl AsyncFn() -> heartline::Result<T>) -> heartline::Result<T> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(e) if e.is_retryable() && begun.elapsed() < Duration::from_secs(15) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}

async fn demo(arguments: Arguments) -> Result<ExitCode> {
    let (directory, paths) = files::find(arguments.directory, arguments.files)?;
    println!("{} files of {}", paths.len(), directory.display());
    let (mut servers, url) = Servers::start(arguments.cluster).await?;
    let prefix = format!("heartline-demo-{}", uuid::Uuid::now_v7());
    println!("on {servers}, keys under {prefix}\n");
    let app = App::builder().redis(url.as_str()).prefix(prefix.as_str()).event_capacity(100_000).build().await?;
    let (index, poison, patient) = tasks::declare(&app)?;

    let tally = Arc::new(Tally::new(paths.len() + 2));
    let (followed, mut started) = (app.events(), app.events());
    let crew = Arc::new(Crew::start(3, &url, &prefix)?);
    let follow = tokio::spawn(report::follow(followed, Arc::clone(&tally), Arc::clone(&crew)));
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let progress = tokio::spawn(report::progress(Arc::clone(&tally)));

    let begin = Instant::now();
    let jobs = index.dispatch_many(paths.iter().cloned()).await?;
    let dispatched = SystemTime::now();
    let patient_job = patient.dispatch(()).id("patient").await?;
    // The worker that runs the patient job is killed, and the job is cancelled while that happens.
    let holder = loop {
        match started.recv().await? {
            Event::Started { id, worker, .. } if id == *patient_job.id() => break worker,
            _ => {}
        }
    };
    drop(started);
    tally.say(&format!("killing {holder} and cancelling its job `patient`"));
    crew.kill_worker(holder.as_str());
    patient_job.cancel("the customer changed their mind").await?;

    let poison_job = poison.dispatch(()).id("poison").stall_max_count(2).await?;
    tally.say("dispatched `poison`, which aborts the process that runs it");
    let mut failover = None;
    for round in 0..5 {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        if round == 0
            && let Some((place, at)) = servers.kill_primary_of("index")?
        {
            tally.say(&format!("killed {place}, the primary that has the jobs of `index`"));
            failover = Some(at);
        }
        let held = patiently(async || index.counts().await).await?.running;
        if held == 0 {
            break;
        }
        if round == 1 {
            tally.say("freezing a worker for three intervals (SIGSTOP)");
            crew.freeze(0, Duration::from_secs(3)).await?;
        } else {
            tally.say(&format!("killing a worker (SIGKILL); the three hold {held} jobs"));
            crew.kill(round);
        }
    }

    // An event can be missed, so the tasks are looked at too; and a job that never ends must not hang the demo.
    let nothing_left = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let counts = async || Ok([index.counts().await?, poison.counts().await?, patient.counts().await?]);
            let counts = patiently(counts).await?;
            if counts.iter().all(|count| count.waiting + count.delayed + count.running == 0) {
                return Ok::<(), heartline::Error>(());
            }
        }
    };
    tokio::select! {
        () = tally.all_ended() => {}
        left = nothing_left => left?,
        () = tokio::time::sleep(Duration::from_secs(90)) => tally.say("some jobs did not end in 90 s"),
    }
    let took = begin.elapsed();
    progress.abort();
    tend.abort();
    crew.stop();

    let mut found = Counted::default();
    let (mut completed, mut lost, mut there) = (0, 0, Vec::with_capacity(paths.len()));
    for (job, path) in jobs.iter().zip(paths) {
        there.push(path);
        match job.state().await {
            Ok(JobState::Completed) => {
                found.add(&job.result().await?);
                completed += 1;
            }
            Ok(state) if state.is_terminal() => {}
            // The primary had acknowledged it, and its replica did not have it yet.
            Err(heartline::Error::JobNotFound { .. }) if failover.is_some_and(|at| may_be_lost(dispatched, at)) => {
                drop(there.pop());
            }
            _ => lost += 1,
        }
    }
    let special = [poison_job.state().await, patient_job.state().await];
    lost += special.iter().filter(|state| !state.as_ref().is_ok_and(|state| state.is_terminal())).count() as u64;
    let as_meant = matches!(special, [Ok(JobState::Failed), Ok(JobState::Cancelled)]);
    follow.abort();
    let (acknowledged, kept) = (jobs.len(), there.len());
    let expected =
        tokio::task::spawn_blocking(move || files::count_all(&there)).await.context("the direct count")??;
    let account = Account {
        took,
        deaths: crew.deaths(),
        lost,
        failover,
        forgotten: acknowledged - kept,
        totals_match: found == expected && completed == kept,
        found,
        expected,
    };
    let clean = tally.print(&account);
    if arguments.board {
        show(&url, &prefix).await?;
    }
    Ok(if clean && as_meant { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
