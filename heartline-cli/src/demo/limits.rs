//! `demo --limits` runs the jobs of 100 customers, two at a time for each. One of them has a third of all jobs, and they come first.
//! Meanwhile the demo kills workers. Records outside of Redis show at the end that no customer had more running jobs, and that none had to
//! wait for another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use heartline::{App, Context, JobError, Limit, StallOptions, TaskDef, TaskOptions};
use serde::{Deserialize, Serialize};

use super::crew::Crew;
use super::{WORKERS, all_end};
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;

/// How many jobs of a customer may run.
const LIMIT: u32 = 2;

/// How many customers have a few jobs, how many jobs each has, and how many jobs one more has, which come first.
const SMALL: usize = 99;
const FEW: usize = 10;
const MANY: usize = 500;

/// How long a job takes.
const TAKES: Duration = Duration::from_millis(30);

/// How many workers are killed, and how much time passes before each.
const KILLS: usize = 12;
const PAUSE: Duration = Duration::from_millis(400);

/// How long all jobs may take.
const LONGEST: Duration = Duration::from_secs(120);

const HOOKS: TaskDef<Hook, ()> = TaskDef::new("hooks");

/// Where runs are recorded outside of Redis: a line for their begin and one for their end.
static RECORDS: OnceLock<PathBuf> = OnceLock::new();

/// The input of the jobs.
#[derive(Serialize, Deserialize)]
struct Hook {
    customer: String,
}

/// The last line of the demo.
#[derive(Serialize)]
struct Verdict {
    customers: usize,
    jobs: usize,
    completed: usize,
    /// Jobs without a completed run.
    lost: usize,
    limit: u32,
    /// The most jobs of one customer that ran at a time.
    most_at_once: u32,
    /// Among this many first starts was one of each customer.
    all_began_within: usize,
    /// Worker processes that were killed.
    killed: usize,
}

fn options() -> TaskOptions {
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(1000);
    TaskOptions::new().concurrency(20).stall(stall).key("/customer").per_key(Limit::new().running(LIMIT))
}

/// The file of the demo with this process id.
fn records(demo: u32) -> PathBuf {
    std::env::temp_dir().join(format!("heartline-demo-{demo}-hooks"))
}

fn us(at: SystemTime) -> u128 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros()
}

fn record(what: &str, ctx: &Context, hook: &Hook) -> Result<(), JobError> {
    let file = RECORDS.get().ok_or_else(|| JobError::new("this process has no records"))?;
    let (now, id, pid) = (us(SystemTime::now()), ctx.id(), std::process::id());
    let line = format!("{now} {what} {} {id} {} {pid}\n", hook.customer, ctx.fence());
    // One write of a line: processes do not mix theirs.
    OpenOptions::new().append(true).open(file)?.write_all(line.as_bytes())?;
    Ok(())
}

async fn run_hook(ctx: Context, hook: Hook) -> Result<(), JobError> {
    record("begin", &ctx, &hook)?;
    tokio::time::sleep(TAKES).await;
    record("end", &ctx, &hook)
}

/// Declares the task of a worker.
pub(super) fn declare(app: &App) -> Result<(), Failure> {
    RECORDS.get_or_init(|| records(std::os::unix::process::parent_id()));
    app.register(HOOKS.options(options()).handler(run_hook))?;
    Ok(())
}

/// Runs the jobs under kills.
///
/// # Errors
/// A failure if a job was lost, or more jobs of a customer ran than may.
pub(super) async fn run(target: &Target, out: Output) -> Result<(), Failure> {
    let file = records(std::process::id());
    fs::write(&file, "")?;
    let ended = run_recorded(target, &file, out).await;
    let _ = fs::remove_file(&file);
    ended
}

async fn run_recorded(target: &Target, records: &Path, out: Output) -> Result<(), Failure> {
    let app = target.app().build().await?;
    let task = app.task_ref_for(&HOOKS.options(options()))?;
    let large = (0..MANY).map(|_| Hook { customer: "large".to_owned() });
    let small = (0..SMALL * FEW).map(|at| Hook { customer: format!("small-{:02}", at % SMALL) });
    let jobs = task.dispatch_many(large.chain(small)).await?.len();
    say!(
        "{jobs} jobs wait: {MANY} of one customer first, then {FEW} of each of {SMALL} others; {LIMIT} of each may run"
    );
    let crew = Arc::new(Crew::start(WORKERS, target, &["--limits"])?);
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let begun = Instant::now();
    let killed = kill(&crew).await;
    let completed = all_end(&task, LONGEST).await? as usize;
    tend.abort();
    let stopped = Arc::clone(&crew);
    tokio::task::spawn_blocking(move || stopped.stop()).await.map_err(std::io::Error::other)?;
    say!("all ended after {:.1} s; {} worker processes were killed", begun.elapsed().as_secs_f64(), killed.len());

    let runs = read(records, &killed)?;
    let (most_at_once, all_began_within) = (most_at_once(&runs), all_began_within(&runs));
    let ran: HashSet<&str> = runs.values().filter(|run| run.has_ended).map(|run| &*run.id).collect();
    let lost = jobs - completed.min(ran.len());
    say!("no customer had more than {most_at_once} running jobs; each had begun within {all_began_within} starts");
    let killed = killed.len();
    out.json_line(&Verdict {
        customers: SMALL + 1,
        jobs,
        completed,
        lost,
        limit: LIMIT,
        most_at_once,
        all_began_within,
        killed,
    })?;
    match lost == 0 && most_at_once <= LIMIT {
        true => Ok(()),
        false => Err(Failure::Failed("a job was lost, or more jobs of a customer ran than may".to_owned())),
    }
}

/// Kills one worker after the other. Returns the process ids, and when each was killed.
async fn kill(crew: &Crew) -> HashMap<u32, u128> {
    let mut killed = HashMap::new();
    for number in 0..KILLS {
        tokio::time::sleep(PAUSE).await;
        let at = us(SystemTime::now());
        let pid = crew.kill(number);
        killed.entry(pid).or_insert(at);
        say!("killed the worker process {pid}");
    }
    killed
}

/// A run of a job.
struct Run {
    customer: String,
    id: String,
    begun: u128,
    /// When it ended, or its process was killed.
    over: u128,
    has_ended: bool,
}

/// The runs by their fences, which are in the order of the claims.
fn read(records: &Path, killed: &HashMap<u32, u128>) -> Result<BTreeMap<u64, Run>, Failure> {
    let mut runs = BTreeMap::new();
    for line in fs::read_to_string(records)?.lines() {
        let unreadable = || Failure::Failed(format!("{} has an unreadable line: {line}", records.display()));
        let [at, what, customer, id, fence, pid] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(unreadable());
        };
        let (at, fence): (u128, u64) = at.parse().ok().zip(fence.parse().ok()).ok_or_else(unreadable)?;
        let died = pid.parse().ok().and_then(|pid| killed.get(&pid)).copied();
        let run = runs.entry(fence).or_insert_with(|| Run {
            customer: customer.to_owned(),
            id: id.to_owned(),
            begun: at,
            over: died.unwrap_or(u128::MAX),
            has_ended: false,
        });
        if what == "end" {
            run.over = run.over.min(at);
            run.has_ended = true;
        }
    }
    Ok(runs)
}

/// The most jobs of one customer that ran at a time.
fn most_at_once(runs: &BTreeMap<u64, Run>) -> u32 {
    let mut changes: Vec<(u128, i32, &str)> = Vec::new();
    for run in runs.values() {
        changes.push((run.begun, 1, &run.customer));
        changes.push((run.over, -1, &run.customer));
    }
    // At the same time, ends come first.
    changes.sort_unstable();
    let (mut now, mut most) = (HashMap::<&str, i32>::new(), 0);
    for (_, change, customer) in changes {
        let count = now.entry(customer).or_default();
        *count += change;
        most = most.max(*count);
    }
    most.unsigned_abs()
}

/// Among how many first starts is one of each customer.
fn all_began_within(runs: &BTreeMap<u64, Run>) -> usize {
    let mut seen = HashSet::new();
    let last = runs.values().enumerate().filter(|(_, run)| seen.insert(&*run.customer)).last();
    last.map_or(0, |(at, _)| at + 1)
}
