//! `make bench`: compares Heartline with its budgets, and with a raw limit that is measured in the same run on the same
//! server.
//!
//! The bench starts a private server, unless `REDIS_URL` names one. There it writes only keys with its own prefix, and
//! removes them. Values are medians of 5 runs, or of fewer if they take long and hardly vary (`--runs` sets the number).
//! Each row is printed as a JSON object as soon as it is measured, and all rows as a table at the end.
//! `make bench ONLY=sweep` runs the rows whose names contain `sweep`; `make plots` draws `docs/plots` from the output.
//! `make bench-instructions` measures other rows, which do not depend on the load of the machine: see `instructions.rs`.

mod child;
mod detection;
mod dispatch;
mod engines;
mod instructions;
mod latency;
mod process;
mod report;
mod running;
#[cfg(feature = "schedules")]
mod schedules;
mod server;
mod settle;
mod stall;
mod work;
mod workflows;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;

use crate::report::Row;
use crate::server::Server;

/// Compares Heartline with its budgets and with the raw limits of the server.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Only the rows whose name contains this text
    only: Option<String>,
    /// Runs of each row (default: 5)
    #[arg(long)]
    runs: Option<usize>,
    /// A tenth of the jobs and fewer runs: two minutes, and less exact
    #[arg(long)]
    quick: bool,
    /// Print the names of the rows and end
    #[arg(long)]
    list: bool,
    /// Count the instructions of the server for fixed calls instead, under callgrind
    #[arg(long, conflicts_with_all = ["runs", "quick"])]
    instructions: bool,
    /// Store the counts, to compare later ones with them
    #[arg(long, requires = "instructions", conflicts_with = "only")]
    store: bool,
    /// Cargo adds this
    #[arg(long, hide = true)]
    bench: bool,
    /// Run as a worker process of the bench
    #[arg(long, hide = true, value_name = "SPEC")]
    work: Option<String>,
}

/// The input of every bench.
pub(crate) struct Bench {
    pub(crate) server: Server,
    wanted: Vec<&'static str>,
    runs: Option<usize>,
    pub(crate) quick: bool,
}

impl Bench {
    /// The number of runs of a row.
    pub(crate) fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    /// The same for rows that take long and hardly vary: at most `most`, unless `--runs` is given.
    pub(crate) fn few_runs(&self, most: usize) -> usize {
        self.runs.unwrap_or(most.min(self.runs())).max(1)
    }

    /// A number of jobs, or a tenth of it with `--quick`.
    pub(crate) fn size(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }

    /// Whether the row was requested.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.wanted.contains(&row)
    }

    /// Whether one of the rows was requested.
    pub(crate) fn wants_any(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.wants(row))
    }

    /// Keeps the requested rows.
    fn keep(&self, rows: Vec<Row>) -> Vec<Row> {
        rows.into_iter().filter(|row| self.wants(&row.bench)).collect()
    }
}

/// The names of all rows, by group and part. The rows of a part are measured together.
fn groups() -> Vec<Vec<Vec<&'static str>>> {
    let alone = |rows: &[&'static str]| rows.iter().map(|row| vec![*row]).collect();
    Vec::from([
        alone(dispatch::ROWS),
        alone(&process::rows()),
        vec![latency::ROWS.to_vec()],
        vec![stall::rows()],
        vec![detection::ROWS.to_vec()],
        vec![engines::rows()],
        alone(&workflows::rows()),
        #[cfg(feature = "schedules")]
        schedules::parts(),
    ])
}

/// Measures the requested rows part by part, and prints each. If a part fails, the others are still measured.
async fn measure(bench: &mut Bench, rows: &mut Vec<Row>) -> Result<()> {
    let wanted = std::mem::take(&mut bench.wanted);
    let mut failed = Vec::new();
    for (group, parts) in groups().iter().enumerate() {
        for part in parts {
            bench.wanted = wanted.iter().copied().filter(|row| part.contains(row)).collect();
            if bench.wanted.is_empty() {
                continue;
            }
            let start = Instant::now();
            let measured = match measure_part(bench, group).await {
                Ok(measured) => bench.keep(measured),
                Err(e) => {
                    failed.push(bench.wanted.join(", "));
                    report::say(&format!("FAILED {}: {e:#}", bench.wanted.join(", ")));
                    continue;
                }
            };
            report::say(&format!("measured in {:.0} s", start.elapsed().as_secs_f64()));
            report::print_json(&measured)?;
            rows.extend(measured);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("could not be measured: {}", failed.join("; ")) }
}

async fn measure_part(bench: &mut Bench, group: usize) -> Result<Vec<Row>> {
    bench.server.clean()?;
    match group {
        0 => dispatch::run(bench).await,
        1 => process::run(bench).await,
        2 => latency::run(bench).await,
        3 => stall::run(bench),
        4 => detection::run(bench).await,
        5 => engines::run(bench).await,
        #[cfg(feature = "schedules")]
        7 => schedules::run(bench).await,
        _ => workflows::run(bench).await,
    }
}

async fn run(args: Args) -> Result<()> {
    if let Some(spec) = &args.work {
        return child::work(spec).await;
    }
    let mut names = if args.instructions { instructions::rows() } else { groups().concat().concat() };
    if let Some(only) = &args.only {
        let all = names.join("\n");
        names.retain(|name| name.contains(only.as_str()));
        if names.is_empty() {
            bail!("no row has {only:?} in its name; the rows are:\n{all}");
        }
    }
    if args.list {
        names.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if args.instructions {
        return instructions::run(&names, args.store).await;
    }
    let (private, url) = heartline::testing::redis_url().await?;
    let mut bench = Bench { server: Server::connect(&url)?, wanted: names, runs: args.runs, quick: args.quick };
    let given = url.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            // A private server ends with this process. On any other server, our keys have to be removed.
            if let Err(e) = Server::connect(&given).and_then(|mut server| server.clean()) {
                eprintln!("cleaning up: {e:#}");
            }
            std::process::exit(130);
        }
    });
    let mut rows = Vec::new();
    let outcome = measure(&mut bench, &mut rows).await;
    // A new connection: after an error, the other one may be in the middle of a reply.
    let cleaned = Server::connect(&url).and_then(|mut server| server.clean());
    interrupt.abort();
    drop(private);
    if args.quick {
        println!("quick: a tenth of the jobs that row names and budgets state, and fewer runs");
    }
    report::print_table(&rows)?;
    outcome.and(cleaned)
}

fn main() -> Result<()> {
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        // Not on this blocked thread: it costs more to wake it than a runtime thread.
        tokio::spawn(run(args)).await?
    })
}
