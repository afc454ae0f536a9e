//! `demo --schedules` runs 50 schedules each second over three workers. Meanwhile it kills workers next to ticks, pauses schedules, deploys
//! workers with other schedules, and leaves ticks without a worker.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use heartline::{App, Context, JobError, Missed, Overlap, Schedule, StallOptions, TaskDef, TaskOptions, TaskRef};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::crew::Crew;
use super::tick_account::{TickAccount, ms};
use super::{WORKERS, all_end};
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;

/// How many schedules each version of the workers has. The second version has five of its own, and lacks five of the first.
const SCHEDULES: usize = 50;
const MOVED: usize = 5;

const SECOND: Duration = Duration::from_secs(1);

/// How many ms after a whole second workers are killed. There the ticks fire.
const KILLS: &[u64] = &[0, 2, 998, 5, 1, 999, 10, 3, 996, 20, 0, 997, 4, 50, 300];

/// How many of them come before the deploy.
const EARLY_KILLS: usize = 10;

/// How long some schedules are paused.
const PAUSE: Duration = Duration::from_secs(3);

/// How long no worker runs.
const OUTAGE: Duration = Duration::from_secs(5);

/// How long a step may take.
const LONGEST: Duration = Duration::from_secs(30);

const TICKS: TaskDef<Work, ()> = TaskDef::new("ticks");

/// Where runs are recorded outside of Redis: one line for each.
static RECORDS: OnceLock<PathBuf> = OnceLock::new();

/// The input of the jobs of a schedule.
#[derive(Serialize, Deserialize)]
struct Work {
    takes_ms: u64,
    /// The version of the workers that declared it.
    version: u32,
}

/// The file of the demo with this process id.
fn records(demo: u32) -> PathBuf {
    std::env::temp_dir().join(format!("heartline-demo-{demo}-ticks"))
}

/// Records that a run begins. A run that follows a crash has another stall count.
fn record(ctx: &Context) -> Result<(), JobError> {
    let file = RECORDS.get().ok_or_else(|| JobError::new("this process has no records"))?;
    let tick = ctx.tick().ok_or_else(|| JobError::new("this job has no tick"))?;
    let run = format!("{}.{}", ctx.attempt(), ctx.stalled_count());
    let line = format!("{} {} {run} {}\n", tick.schedule, ms(tick.due), ms(SystemTime::now()));
    // One write of a line: processes do not mix theirs.
    OpenOptions::new().append(true).open(file)?.write_all(line.as_bytes())?;
    Ok(())
}

async fn run_tick(ctx: Context, work: Work) -> Result<(), JobError> {
    record(&ctx)?;
    tokio::time::sleep(Duration::from_millis(work.takes_ms)).await;
    Ok(())
}

fn name(number: usize) -> String {
    format!("each-second-{number:02}")
}

/// A schedule of a version. The second version has another rule for some, with the same ticks, and another input for some.
fn schedule(number: usize, version: u32) -> heartline::Result<(Schedule, Work)> {
    let is_other = version > 1;
    let rule = match is_other && number < 20 {
        true => Schedule::cron_with_seconds("* * * * * *")?,
        false => Schedule::every(SECOND),
    };
    let (schedule, takes_ms) = match number % 5 {
        0 => (rule.grace(SECOND).missed(Missed::All(2)), 20),
        1 => (rule.jitter(SECOND / 4), 20),
        2 => (rule, 1500),
        3 => (rule.overlap(Overlap::Queue), 1500),
        _ => (rule.grace(SECOND).missed(Missed::Skip), 20),
    };
    let version = if is_other && (10..30).contains(&number) { version } else { 1 };
    Ok((schedule, Work { takes_ms, version }))
}

/// Declares the task of a worker with the schedules of its version.
pub(super) fn declare(app: &App, version: u32) -> Result<(), Failure> {
    RECORDS.get_or_init(|| records(std::os::unix::process::parent_id()));
    let stall = StallOptions::new().interval(SECOND).max_count(1000);
    let options = TaskOptions::new().concurrency(64).shutdown_grace(10 * SECOND).stall(stall);
    let mut task = app.register(TICKS.options(options).handler(run_tick))?;
    let first = if version > 1 { MOVED } else { 0 };
    for number in first..first + SCHEDULES {
        let (schedule, work) = schedule(number, version)?;
        task = task.schedule(&name(number), schedule, work)?;
    }
    Ok(())
}

/// Runs the schedules under faults.
///
/// # Errors
/// A failure if the counts do not add up, or a tick ran twice or early.
pub(super) async fn run(target: &Target, out: Output) -> Result<(), Failure> {
    let file = records(std::process::id());
    fs::write(&file, "")?;
    let ended = run_recorded(target, &file, out).await;
    let _ = fs::remove_file(&file);
    ended
}

async fn run_recorded(target: &Target, records: &Path, out: Output) -> Result<(), Failure> {
    let app = target.app().build().await?;
    let crew = Arc::new(Crew::start(WORKERS, target, &["--schedules", "1"])?);
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let mut stage = Stage { task: app.task_ref_for(&TICKS)?, crew, tend, kills: 0 };
    let begun = Instant::now();
    stage.declared(SCHEDULES).await?;
    say!("{SCHEDULES} schedules run each second, over {WORKERS} workers");
    stage.disturb().await?;
    stage.end().await?;
    let seconds = begun.elapsed().as_secs();
    say!("stopped after {seconds} s; {} worker processes were killed", stage.kills);

    let infos = stage.task.schedules().list().await?;
    let account = TickAccount::read(&app, TICKS.name(), records).await?;
    let is_sound = account.print(&infos, seconds, stage.kills, out)?;
    match is_sound && infos.len() == SCHEDULES + MOVED {
        true => Ok(()),
        false => Err(Failure::Failed("ticks were lost, ran twice or ran early".to_owned())),
    }
}

/// The demo's side of the running workers.
struct Stage {
    task: TaskRef<Work, ()>,
    crew: Arc<Crew>,
    tend: JoinHandle<Result<(), Failure>>,
    kills: usize,
}

impl Stage {
    /// Waits until there are this many schedules.
    async fn declared(&self, count: usize) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.task.schedules().list().await?.len() < count {
            if begun.elapsed() > LONGEST {
                return Err(Failure::Failed(format!("the workers did not declare {count} schedules")));
            }
            tokio::time::sleep(SECOND / 10).await;
        }
        Ok(())
    }

    /// Kills workers, pauses schedules, deploys, and leaves ticks without a worker.
    async fn disturb(&mut self) -> Result<(), Failure> {
        let (early, late) = KILLS.split_at(EARLY_KILLS);
        self.kill_next_to_ticks(early).await;
        let schedules = self.task.schedules();
        let paused: Vec<String> = (0..SCHEDULES).step_by(5).map(name).collect();
        say!("pausing {} schedules for {} s", paused.len(), PAUSE.as_secs());
        for name in &paused {
            schedules.pause(name, "the customer asked for it").await?;
        }
        tokio::time::sleep(PAUSE).await;
        for name in &paused {
            schedules.resume(name).await?;
        }
        say!("deploying workers with other schedules, one by one");
        self.crew.deploy(&["--schedules", "2"]);
        for index in 0..WORKERS {
            self.crew.shut_down(index);
            tokio::time::sleep(2 * SECOND).await;
        }
        self.declared(SCHEDULES + MOVED).await?;
        say!("killing all workers; none runs for {} s", OUTAGE.as_secs());
        self.tend.abort();
        let _ = (&mut self.tend).await;
        for index in 0..WORKERS {
            self.crew.kill(index);
        }
        self.kills += WORKERS;
        tokio::time::sleep(OUTAGE).await;
        self.tend = tokio::spawn(Arc::clone(&self.crew).tend());
        // They need a moment to start.
        tokio::time::sleep(2 * SECOND).await;
        self.kill_next_to_ticks(late).await;
        Ok(())
    }

    /// Kills one worker after the other, each this many ms after a whole second.
    async fn kill_next_to_ticks(&mut self, after: &[u64]) {
        for after in after {
            tokio::time::sleep(Duration::from_millis(1000 - ms(SystemTime::now()) % 1000 + after)).await;
            let pid = self.crew.kill(self.kills);
            self.kills += 1;
            say!("killed the worker process {pid} {after} ms after a whole second");
        }
    }

    /// Pauses all schedules, waits until their jobs have ended, and stops the workers.
    async fn end(&self) -> Result<(), Failure> {
        let schedules = self.task.schedules();
        for info in schedules.list().await? {
            schedules.pause(&info.name, "the demo ends").await?;
        }
        // A call that fires may be on its way.
        tokio::time::sleep(SECOND).await;
        all_end(&self.task, LONGEST).await?;
        self.tend.abort();
        let stopped = Arc::clone(&self.crew);
        tokio::task::spawn_blocking(move || stopped.stop()).await.map_err(std::io::Error::other)?;
        Ok(())
    }
}
