//! `make bench`: what Heartline reaches, budget by budget, beside the raw limit that is measured in the
//! same run on the same server.
//!
//! A private server is started unless `REDIS_URL` names one; on that, only keys with the bench's own prefix are written,
//! and they are removed. Rates are medians of 5 runs, those with a million rows of 3 (`--runs` sets both).
//! `make bench ONLY=sweep` runs the rows whose names hold `sweep`.

mod detection;
mod dispatch;
mod latency;
mod memory;
mod process;
mod report;
mod server;
mod stall;

use anyhow::{Result, bail};
use clap::Parser;

use crate::report::Row;
use crate::server::Server;

/// Measures Heartline beside the raw limits of the server.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Only the rows whose name contains this text
    only: Option<String>,
    /// Runs of each row (default: 5, and 3 of those with a million jobs)
    #[arg(long)]
    runs: Option<usize>,
    /// A tenth of the jobs and fewer runs: under a minute, and less exact
    #[arg(long)]
    quick: bool,
    /// Print the names of the rows and end
    #[arg(long)]
    list: bool,
    /// Cargo adds this
    #[arg(long, hide = true)]
    bench: bool,
    /// Hold jobs until killed: a worker process of the detection rows
    #[arg(long, hide = true, num_args = 3, value_names = ["URL", "PREFIX", "TASK"])]
    hold: Option<Vec<String>>,
}

/// What every bench gets.
pub(crate) struct Bench {
    pub(crate) server: Server,
    only: Option<String>,
    runs: Option<usize>,
    quick: bool,
}

impl Bench {
    /// How often a row is measured.
    pub(crate) fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    /// How often a row with a million jobs is measured.
    pub(crate) fn big_runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    /// A size, smaller when it has to be quick.
    pub(crate) fn size(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }

    /// Whether the row was asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.as_ref().is_none_or(|only| row.contains(only.as_str()))
    }

    /// Whether one of the rows was asked for.
    pub(crate) fn wants_any(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.wants(row))
    }

    /// Keeps the rows that were asked for.
    fn keep(&self, rows: Vec<Row>) -> Vec<Row> {
        rows.into_iter().filter(|row| self.wants(&row.bench)).collect()
    }
}

/// The names of all rows, group by group.
const GROUPS: [&[&str]; 6] = [dispatch::ROWS, process::ROWS, latency::ROWS, memory::ROWS, stall::ROWS, detection::ROWS];

async fn measure(bench: &mut Bench, rows: &mut Vec<Row>) -> Result<()> {
    for (group, names) in GROUPS.into_iter().enumerate() {
        if !bench.wants_any(names) {
            continue;
        }
        bench.server.clean()?;
        let measured = match group {
            0 => dispatch::run(bench).await?,
            1 => process::run(bench).await?,
            2 => latency::run(bench).await?,
            3 => memory::run(bench).await?,
            4 => stall::run(bench)?,
            _ => detection::run(bench).await?,
        };
        rows.extend(bench.keep(measured));
    }
    Ok(())
}

async fn run(args: Args) -> Result<()> {
    if let Some(hold) = &args.hold {
        let [url, prefix, task] = hold.as_slice() else { bail!("--hold takes three values") };
        return detection::hold(url, prefix, task).await;
    }
    if args.list {
        GROUPS.concat().iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(only) = &args.only
        && !GROUPS.concat().iter().any(|name| name.contains(only.as_str()))
    {
        bail!("no row has {only:?} in its name; the rows are:\n{}", GROUPS.concat().join("\n"));
    }
    let (private, url) = heartline::testing::redis_url().await?;
    let mut bench = Bench { server: Server::connect(&url)?, only: args.only, runs: args.runs, quick: args.quick };
    let given = url.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            // A private server ends with this process; on another one nothing of ours may stay.
            if let Err(e) = Server::connect(&given).and_then(|mut server| server.clean()) {
                eprintln!("cleaning up: {e:#}");
            }
            std::process::exit(130);
        }
    });
    let mut rows = Vec::new();
    let outcome = measure(&mut bench, &mut rows).await;
    report::progress_done();
    // A connection of its own: after an error the other one may be in the middle of an answer.
    let cleaned = Server::connect(&url).and_then(|mut server| server.clean());
    interrupt.abort();
    drop(private);
    if args.quick {
        println!("quick: a tenth of the jobs that the names of the rows and the budgets mean, few runs");
    }
    report::print(&rows)?;
    outcome.and(cleaned)
}

fn main() -> Result<()> {
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        // Not on the thread that blocks here: a wake-up of that one costs more than one of a runtime thread.
        tokio::spawn(run(args)).await?
    })
}
