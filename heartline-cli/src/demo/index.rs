//! The jobs of the demo: one per file, one that kills its process, and one that is cancelled while its worker dies.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use heartline::{App, Context, Error, Event, JobError, JobHandle, JobState, StallOptions, TaskOptions, TaskRef};

use super::account::{Account, Tally, follow, may_be_lost, progress};
use super::crew::Crew;
use super::files::{self, Counted};
use super::servers::Servers;
use crate::failure::Failure;
use crate::output::Output;

const INTERVAL: Duration = Duration::from_secs(1);

/// The time between two faults, and how many there are.
const ROUND: Duration = Duration::from_millis(1200);
const ROUNDS: usize = 5;

/// How long jobs may take to end.
const LONGEST: Duration = Duration::from_secs(90);

/// How long calls are repeated while a primary is away.
const OUTAGE: Duration = Duration::from_secs(15);

pub(super) struct Tasks {
    index: TaskRef<String, Counted>,
    poison: TaskRef<(), ()>,
    patient: TaskRef<(), ()>,
}

impl Tasks {
    /// Declares the tasks, for the demo and for its workers.
    pub(super) fn of(app: &App) -> Result<Tasks, Failure> {
        // Each stall of the poison job also counts for the jobs next to it, which must not fail before it.
        let stall = StallOptions::new().interval(INTERVAL).max_count(10);
        let options = TaskOptions::new()
            .concurrency(16)
            .shutdown_grace(Duration::from_secs(2))
            .cancel_grace(Duration::from_millis(500))
            .stall(stall);
        let index = app.task("index", options.clone(), index)?;
        // The process ends as by a segmentation fault or the OOM killer.
        let poison = app.task("poison", options.clone(), async |_: Context, (): ()| -> Result<(), JobError> {
            std::process::abort()
        })?;
        let patient = app.task("patient", options, async |ctx: Context, (): ()| -> Result<(), JobError> {
            loop {
                ctx.heartbeat()?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })?;
        Ok(Tasks { index, poison, patient })
    }
}

/// Reads one file and counts it. The pauses simulate slow input, so that a kill always hits running jobs.
async fn index(ctx: Context, path: String) -> Result<Counted, JobError> {
    let content = tokio::fs::read(&path).await?;
    for part in 1..=5_u8 {
        ctx.heartbeat()?;
        tokio::time::sleep(Duration::from_millis(40)).await;
        ctx.progress(&(20 * part), format!("part {part} of 5"))?;
    }
    Ok(files::count(&content))
}

/// Counts the files by jobs, under faults, pass by pass.
pub(super) struct Index<'a> {
    app: &'a App,
    tasks: Tasks,
    servers: &'a mut Servers,
    crew: &'a Arc<Crew>,
    paths: &'a [String],
}

/// The jobs of one pass.
struct Dispatched {
    files: Vec<JobHandle<Counted>>,
    at: SystemTime,
    poison: JobHandle<()>,
    patient: JobHandle<()>,
}

impl Index<'_> {
    pub(super) fn new<'a>(
        app: &'a App,
        servers: &'a mut Servers,
        crew: &'a Arc<Crew>,
        paths: &'a [String],
    ) -> Result<Index<'a>, Failure> {
        Ok(Index { app, tasks: Tasks::of(app)?, servers, crew, paths })
    }

    /// Pass after pass, until one loses a job.
    pub(super) async fn run_forever(&mut self, out: Output) -> Result<(), Failure> {
        loop {
            self.pass(false, out).await?;
        }
    }

    /// One pass; after the last one the workers are stopped.
    ///
    /// # Errors
    /// A failure if a job was lost, recorded twice, or ended in the wrong state.
    pub(super) async fn pass(&mut self, is_last: bool, out: Output) -> Result<(), Failure> {
        let tally = Arc::new(Tally::new(self.paths.len() + 2));
        let (followed, started) = (self.app.events(), self.app.events());
        let follow = tokio::spawn(follow(followed, Arc::clone(&tally), Arc::clone(self.crew)));
        let progress = tokio::spawn(progress(Arc::clone(&tally)));
        let begun = Instant::now();
        let jobs = self.dispatch(started).await?;
        let failover = self.disturb().await?;
        self.wait(&tally).await?;
        let took = begun.elapsed();
        progress.abort();
        if is_last {
            let crew = Arc::clone(self.crew);
            tokio::task::spawn_blocking(move || crew.stop()).await.map_err(std::io::Error::other)?;
        }
        let account = self.account(&jobs, failover, took).await?;
        follow.abort();
        match tally.print(&account, out)? {
            true => Ok(()),
            false => Err(Failure::Failed("jobs were lost, or ended in the wrong state".to_owned())),
        }
    }

    /// Dispatches all jobs. The worker of the patient job is killed, and the job is cancelled while that happens.
    async fn dispatch(&self, mut started: heartline::Subscription<Event>) -> Result<Dispatched, Failure> {
        let files = self.tasks.index.dispatch_many(self.paths.iter().cloned()).await?;
        let at = SystemTime::now();
        let patient = self.tasks.patient.dispatch(()).await?;
        let holder = loop {
            match started.recv().await.map_err(|e| Failure::Failed(e.to_string()))? {
                Event::Started { id, worker, .. } if id == *patient.id() => break worker,
                _ => {}
            }
        };
        say!("killing {holder} and cancelling its job of `patient`");
        self.crew.kill_worker(holder.as_str());
        patient.cancel("the customer changed their mind").await?;
        let poison = self.tasks.poison.dispatch(()).max_stalls(2).await?;
        say!("dispatched `poison`, which aborts the process that runs it");
        Ok(Dispatched { files, at, poison, patient })
    }

    /// Kills and freezes workers, and a primary if there are replicas. Returns when the primary was killed.
    async fn disturb(&mut self) -> Result<Option<SystemTime>, Failure> {
        let mut failover = None;
        for round in 0..ROUNDS {
            tokio::time::sleep(ROUND).await;
            if round == 0
                && let Some((address, at)) = self.servers.kill_primary_of("index")?
            {
                say!("killed {address}, the primary of `index`");
                failover = Some(at);
            }
            let held = patiently(async || self.tasks.index.counts().await).await?.running;
            if held == 0 {
                break;
            }
            if round == 1 {
                say!("freezing a worker for three intervals (SIGSTOP)");
                self.crew.freeze(0, 3 * INTERVAL).await;
            } else {
                let pid = self.crew.kill(round);
                say!("killed the worker process {pid} (SIGKILL); the workers held {held} jobs");
            }
        }
        Ok(failover)
    }

    /// Waits until every job has ended. An event can be missed, so the counts are read too.
    async fn wait(&self, tally: &Tally) -> Result<(), Failure> {
        let Tasks { index, poison, patient } = &self.tasks;
        let nothing_left = async {
            loop {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let counts = async || Ok([index.counts().await?, poison.counts().await?, patient.counts().await?]);
                if patiently(counts).await?.iter().all(|count| count.waiting + count.delayed + count.running == 0) {
                    return Ok::<(), Error>(());
                }
            }
        };
        tokio::select! {
            () = tally.all_ended() => {}
            left = nothing_left => left?,
            () = tokio::time::sleep(LONGEST) => say!("some jobs did not end in {} s", LONGEST.as_secs()),
        }
        Ok(())
    }

    /// Reads how each job ended.
    async fn account(
        &self,
        jobs: &Dispatched,
        failover: Option<SystemTime>,
        took: Duration,
    ) -> Result<Account, Failure> {
        let (mut found, mut completed, mut lost) = (Counted::default(), 0, 0);
        let mut kept = Vec::with_capacity(self.paths.len());
        for (job, path) in jobs.files.iter().zip(self.paths) {
            kept.push(path.clone());
            match job.state().await {
                Ok(JobState::Completed) => {
                    found.add(&job.result().await?);
                    completed += 1;
                }
                Ok(state) if state.is_terminal() => {}
                // The primary had acknowledged the job before its replica had it.
                Err(Error::JobNotFound { .. }) if failover.is_some_and(|at| may_be_lost(jobs.at, at)) => {
                    drop(kept.pop());
                }
                _ => lost += 1,
            }
        }
        let special = [jobs.poison.state().await, jobs.patient.state().await];
        lost += special.iter().filter(|state| !state.as_ref().is_ok_and(|state| state.is_terminal())).count() as u64;
        let mut faults = 0;
        for task in ["index", "poison", "patient"] {
            let report = self.app.inspector().audit(task).await?;
            faults += report.parts.iter().map(|part| part.found).sum::<u64>();
        }
        let (forgotten, counted) = (jobs.files.len() - kept.len(), completed == kept.len());
        let expected = tokio::task::spawn_blocking(move || files::count_all(&kept)).await;
        let expected = expected.map_err(std::io::Error::other)??;
        Ok(Account {
            took,
            deaths: self.crew.deaths(),
            lost,
            faults,
            failover,
            forgotten,
            ended_as_meant: matches!(special, [Ok(JobState::Failed), Ok(JobState::Cancelled)]),
            totals_match: found == expected && counted,
            found,
            expected,
        })
    }
}

/// Repeats a call while a primary is away.
async fn patiently<T>(call: impl AsyncFn() -> heartline::Result<T>) -> heartline::Result<T> {
    let begun = Instant::now();
    loop {
        match call().await {
            Err(e) if e.is_retryable() && begun.elapsed() < OUTAGE => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}
