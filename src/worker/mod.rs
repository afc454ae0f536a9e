//! A worker: one driver a task on the user's runtime, and a keeper on a thread of its own.

mod claims;
pub(crate) mod clock;
pub(crate) mod driver;
pub(crate) mod held;
pub(crate) mod identity;
pub(crate) mod keeper;
mod observer;
mod outage;
mod panics;
pub(crate) mod runner;
mod running;
mod signal;
mod wake;

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use observer::{Observer, RunEnd, RunInfo, RunOutcome};
pub use running::RunningWorker;
pub use signal::shutdown_signal;

use self::claims::Claims;
use self::clock::Moment;
use self::driver::{Driver, Estate, Outbox};
use self::held::{HeldTable, News};
use self::outage::Outage;
use self::runner::Handler;
use self::signal::Signals;
use self::wake::Wake;
use crate::data::{Data, Need};
use crate::error::{ConfigError, ConfigErrors, Error, ErrorMap};
use crate::job::JobId;
use crate::options::Resolved;
use crate::pauses::Pauses;
use crate::shown::Shown;
use crate::store::jobs::Declared;
use crate::store::{RESPONSE_TIMEOUT, Store, TaskKeys, jobs};
use crate::worker_id::WorkerId;

/// How long the clean-up after the last job may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long a shutdown goes on to report, behind its graces: until the sweep of another worker could take the jobs.
pub(crate) fn reporting_time(interval: Duration) -> Duration {
    interval / 3 * 2
}

/// How many large values a worker reads at a time.
const LARGE_READS: usize = 4;

/// What driver, keeper and runners of one task share.
pub(crate) struct TaskRuntime {
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) options: Arc<Resolved>,
    pub(crate) handler: Handler,
    /// What the user says of errors.
    pub(crate) errors: Arc<[ErrorMap]>,
    pub(crate) held: HeldTable,
    pub(crate) outbox: Outbox,
    /// What the driver has to say and has not been answered, for the keeper when the driver is gone.
    pub(crate) estate: Estate,
    /// The driver and the runs that are not dropped yet.
    pub(crate) alive: TaskTracker,
    /// Rings when the driver has something to look at.
    pub(crate) poke: Notify,
    /// Rings when the keeper is to beat for all jobs at once.
    pub(crate) beat_now: Notify,
    /// Rings when the keeper is to beat for some jobs soon.
    pub(crate) rung: Arc<Notify>,
    /// When this worker declared the options of the task, ms by the clock of the server.
    pub(crate) stamp: u64,
    /// When the last beat that was answered had been sent; 0 before the first.
    last_beat: AtomicU64,
    /// How long its answers took, ms; 0 for one that named no job.
    beat_took: AtomicU64,
    pub(crate) claims: Claims,
}

impl TaskRuntime {
    /// How often the keeper beats: a threshold is three of its heartbeats.
    pub(crate) fn beat_period(&self) -> Duration {
        self.options.interval / 3
    }

    pub(crate) fn last_beat(&self) -> Moment {
        Moment::from_millis(self.last_beat.load(Ordering::SeqCst))
    }

    pub(crate) fn beat_answered(&self, sent: Moment, took: Duration) {
        self.beat_took.store(took.as_millis() as u64, Ordering::SeqCst);
        self.last_beat.fetch_max(sent.as_millis().max(1), Ordering::SeqCst);
    }

    /// Whether the last beat took over half a period.
    pub(crate) fn beats_are_slow(&self) -> bool {
        Duration::from_millis(self.beat_took.load(Ordering::SeqCst)) > self.beat_period() / 2
    }

    /// Whether jobs may be claimed: a keeper that cannot beat could not keep them, and one that takes long to beat for those
    /// that it has is not to be given more.
    pub(crate) fn beats_are_fresh(&self) -> bool {
        let last = self.last_beat();
        last.as_millis() > 0 && clock::now().since(last) < self.beat_period() * 2 && !self.beats_are_slow()
    }

    /// Writes the options of the task again, unless a worker that started later has: the server has lost them.
    pub(crate) async fn declare_again(&self, store: &Store) -> Result<(), Error> {
        let declare = async |conn: &mut _| jobs::declare(conn, &self.keys, Some(self.stamp), &self.options).await;
        if let Declared::Ours(..) = store.shared(RESPONSE_TIMEOUT, declare).await? {
            tracing::warn!(task = %self.name, "the server had lost the options of the task; they are declared again");
        }
        Ok(())
    }
}

/// What all tasks of one worker share.
pub(crate) struct WorkerShared {
    pub(crate) id: WorkerId,
    pub(crate) store: Arc<Store>,
    /// What handlers share.
    pub(crate) data: Arc<Data>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) stopping: CancellationToken,
    /// The grace of the shutdown is over at once.
    pub(crate) hurry: CancellationToken,
    pub(crate) outage: Outage,
    pub(crate) wake: Wake,
    /// When the keeper looked at the deadlines last, ms on the boot-time clock.
    pub(crate) last_tick: Arc<AtomicU64>,
    /// What the keeper has to tell handlers.
    pub(crate) news: Arc<News>,
    /// For reading values that travel apart.
    pub(crate) large_reads: Semaphore,
    keeper_gone: AtomicBool,
    /// The most jobs over all tasks, and a permit for each that is not held.
    pub(crate) max_jobs: Option<usize>,
    cap: Option<Arc<Semaphore>>,
}

impl WorkerShared {
    pub(crate) fn is_keeper_gone(&self) -> bool {
        self.keeper_gone.load(Ordering::SeqCst)
    }

    /// Takes up to `wanted` slots of the cap over all tasks.
    pub(crate) fn take_permits(&self, wanted: usize) -> usize {
        let Some(cap) = &self.cap else { return wanted };
        let mut count = wanted.min(cap.available_permits());
        while count > 0 {
            match cap.try_acquire_many(count as u32) {
                Ok(permits) => {
                    permits.forget();
                    return count;
                }
                Err(_) => count = count.saturating_sub(1).min(cap.available_permits()),
            }
        }
        0
    }

    /// Waits for a slot of the cap, behind the tasks that came before; `None` without a cap.
    pub(crate) fn queue_for_permit(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let cap = Arc::clone(self.cap.as_ref()?);
        Some(async move {
            if let Ok(permit) = cap.acquire_owned().await {
                permit.forget();
            }
        })
    }

    /// Gives slots of the cap back, to the tasks that wait for one first.
    pub(crate) fn return_permits(&self, count: usize) {
        if let Some(cap) = &self.cap {
            cap.add_permits(count);
        }
    }
}

/// Why a worker stopped.
///
/// As what `main` returns it makes the exit code: 0 for `Shutdown`, 1 for the others, which are told on stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[must_use = "a worker that left jobs behind, or broke, returns Ok too"]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to, and every job that it held was recorded or requeued.
    Shutdown,
    /// It was asked to, and Redis could not be told about these jobs in time. The sweep of another worker finds them
    /// and counts a stall for each.
    Unclean {
        /// The jobs that were left. None are named when all that is open is a claim that Redis did not answer.
        left: Vec<JobId>,
    },
    /// A part of it ended by itself, which is a bug, here or in code that the part called: a subscriber of `tracing` that
    /// panics, say. It told Redis what it could, and beats for no job any more.
    Broken {
        /// What ended.
        part: WorkerPart,
        /// The jobs that were let go: the sweep of another worker finds them and counts a stall for each.
        left: Vec<JobId>,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Shutdown => f.write_str("shut down"),
            StopReason::Unclean { left } => write!(f, "shut down, with {} jobs left to the sweep", left.len()),
            StopReason::Broken { part, left } => {
                write!(f, "its {part} ended, with {} jobs left to the sweep", left.len())
            }
        }
    }
}

impl Termination for StopReason {
    fn report(self) -> ExitCode {
        if self == StopReason::Shutdown {
            return ExitCode::SUCCESS;
        }
        // There is nobody else to tell when this cannot be written.
        let _ = writeln!(std::io::stderr(), "the worker stopped: {self}");
        ExitCode::FAILURE
    }
}

/// A part of a worker without which it cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerPart {
    /// The thread that beats for its jobs.
    Keeper,
    /// The loop that claims jobs of a task and reports how they ended.
    Driver,
    /// What waits for new work.
    Wake,
    /// What shows that the runtime runs.
    Canary,
}

impl WorkerPart {
    /// The name: `keeper`, `driver`, `wake` or `canary`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkerPart::Keeper => "keeper",
            WorkerPart::Driver => "driver",
            WorkerPart::Wake => "wake",
            WorkerPart::Canary => "canary",
        }
    }
}

impl fmt::Display for WorkerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Works the tasks of an [`App`](crate::App). Made by [`App::worker`](crate::App::worker).
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) data: Arc<Data>,
    pub(crate) tasks: Vec<Definition>,
    pub(crate) cap: Option<usize>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) id: WorkerId,
}

/// A task with a handler.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) options: Arc<Resolved>,
    pub(crate) handler: Handler,
    pub(crate) errors: Arc<[ErrorMap]>,
    pub(crate) needs: Arc<[Need]>,
}

impl Worker {
    /// Works only the tasks named, each once however often it is named. Defaults to every task with a handler.
    ///
    /// # Errors
    /// `Config` when one of the names has no handler in this App.
    pub fn only<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Worker, Error> {
        let mut kept: Vec<Definition> = Vec::new();
        let mut faults = Vec::new();
        for name in names {
            match self.tasks.iter().find(|task| &*task.name == name) {
                // Two drivers of one task would share the numbers of their calls.
                Some(task) if kept.iter().all(|kept| kept.name != task.name) => kept.push(task.clone()),
                Some(_) => {}
                None => faults.push(ConfigError::new(
                    "worker.only",
                    name,
                    "must be a task of this App with a handler",
                    "declare it with App::task before, or correct the name",
                )),
            }
        }
        ConfigErrors::check(faults).map_err(Error::Config)?;
        self.tasks = kept;
        Ok(self)
    }

    /// The most jobs that this worker holds at once, over all its tasks, which get free slots in turn. Defaults to no bound
    /// but each task's own concurrency. 0 counts as 1.
    pub fn max_jobs(mut self, jobs: usize) -> Worker {
        self.cap = Some(jobs.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    /// Lets the observer hear of every run of this worker. A later one takes its place. Defaults to none.
    pub fn observe(mut self, observer: impl Observer) -> Worker {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The longest that a shutdown takes, from the signal until the worker has stopped: what is left then is left to the
    /// sweep. Give the process as long before it is killed (`terminationGracePeriodSeconds`, `TimeoutStopSec`).
    #[must_use]
    pub fn longest_shutdown(&self) -> Duration {
        let longest = self.tasks.iter().map(|task| {
            let Resolved { shutdown_grace, cancel_grace, interval, .. } = *task.options;
            shutdown_grace.saturating_add(cancel_grace).saturating_add(reporting_time(interval))
        });
        longest.max().unwrap_or_default().saturating_add(FAREWELL)
    }

    /// The identity under which this worker will hold jobs.
    #[must_use]
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// Works until the process ends. See [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    pub async fn run(self) -> Result<StopReason, Error> {
        self.run_until(std::future::pending()).await
    }

    /// Works until the process is told to stop ([`shutdown_signal`]). A second signal ends the shutdown grace: handlers are
    /// told to stop at once. See [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    ///
    /// # Cancel safety
    /// As [`Worker::run_until`].
    pub async fn run_until_signal(self) -> Result<StopReason, Error> {
        // Both hear all from now on. The shutdown may begin without a signal, when a part of the worker breaks.
        let (mut first, mut second, told) = (Signals::listen(), Signals::listen(), AtomicBool::new(false));
        let shutdown = async {
            first.next().await;
            told.store(true, Ordering::SeqCst);
        };
        let hurry = async {
            if told.load(Ordering::SeqCst) {
                second.next().await;
            }
            second.next().await;
        };
        self.run_with(shutdown, hurry).await
    }

    /// Starts the worker in a task of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(self) -> RunningWorker {
        RunningWorker::spawn(self)
    }

    /// Works until `shutdown` completes, then stops claiming, lets handlers go on for the shutdown grace, tells them to
    /// stop, drops them after the cancel grace, and requeues what is unfinished: to the front of its list, with no
    /// stall counted and no attempt used. [`Worker::longest_shutdown`] tells how long that takes.
    ///
    /// A server that is away, also at the start, is waited for.
    ///
    /// # Errors
    /// What keeps it from starting, and time does not mend: `Connect` (a wrong password, or no Redis), `Denied`, `Unsupported`
    /// (server, wire version, or a right that its user of the server lacks), `Server` (something foreign under a key of a
    /// task), `Config` (no task to work).
    ///
    /// # Cancel safety
    /// Dropped, or aborted with its task or its runtime, it drops the handlers; a thread of its own goes on to beat until they
    /// are gone, for at most the cancel grace and a second, records what had ended and requeues the rest, as long as the
    /// process lives. Rather complete `shutdown`, which lets handlers end.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<StopReason, Error> {
        self.run_with(shutdown, std::future::pending()).await
    }

    /// The same; when `hurry` completes behind it, the shutdown grace is over.
    pub(crate) async fn run_with(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<StopReason, Error> {
        let mut faults: Vec<ConfigError> =
            self.tasks.iter().flat_map(|task| self.data.faults(&task.name, &task.needs)).collect();
        if self.tasks.is_empty() {
            let fix = "declare one with App::task before App::worker is called, and name it in Worker::only";
            faults.push(ConfigError::new("worker", "without a task", "must have one with a handler", fix));
        }
        ConfigErrors::check(faults).map_err(Error::Config)?;
        tokio::pin!(shutdown);
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(1));
        let mut waits = None;
        let stamps = loop {
            let e = match self.start().await {
                Ok(stamps) => break stamps,
                Err(e) if e.is_retryable() => e,
                Err(e) => return Err(e),
            };
            if waits.is_none() {
                tracing::warn!(worker_id = %self.id, error = %e.chain(), "the worker waits for redis to start");
            }
            waits.get_or_insert_with(clock::now);
            tokio::select! {
                () = &mut shutdown => return Ok(StopReason::Shutdown),
                () = tokio::time::sleep(pauses.next()) => {}
            }
        };
        if let Some(since) = waits {
            let away_ms = clock::now().since(since).as_millis() as u64;
            tracing::info!(worker_id = %self.id, away_ms, "redis is there");
        }
        self.work(stamps, shutdown, hurry).await
    }

    /// Checks the server and declares the tasks. Returns when each was declared, ms by the clock of the server.
    async fn start(&self) -> Result<Vec<u64>, Error> {
        self.store.ready().await?;
        // A start that is refused changes nothing, of no task.
        for task in &self.tasks {
            let wire = self.store.shared(RESPONSE_TIMEOUT, async |conn| jobs::check_wire(conn, &task.keys).await);
            let rights = self.store.shared(RESPONSE_TIMEOUT, async |conn| jobs::check_rights(conn, &task.keys).await);
            tokio::try_join!(wire, rights)?;
        }
        // Before the first claim: of a worker that is not listed, what it leaves would stay for ever.
        let facts = identity::presence(&identity::process_facts(), self.tasks.iter().map(|task| (&*task.name, 0)));
        let announce = async |conn: &mut _| self.store.announce(conn, self.id.as_str(), &facts).await;
        self.store.shared(RESPONSE_TIMEOUT, announce).await?;
        self.store.works_as(self.id.as_str());
        let mut stamps = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let declare = async |conn: &mut _| jobs::declare(conn, &task.keys, None, &task.options).await;
            stamps.push(match self.store.shared(RESPONSE_TIMEOUT, declare).await? {
                Declared::Ours(stamp, changed) => {
                    for (option, old, new) in changed {
                        let (old, new) = (Shown(&old), Shown(&new));
                        tracing::info!(task = %task.name, option, %old, %new, "an option of the task changed with this start");
                    }
                    stamp
                }
                Declared::Theirs(stamp) => stamp,
            });
        }
        Ok(stamps)
    }

    async fn work(
        self,
        stamps: Vec<u64>,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<StopReason, Error> {
        let longest = self.longest_shutdown();
        let about: Vec<String> = self
            .tasks
            .iter()
            .map(|Definition { name, options, .. }| {
                format!("{name} (concurrency {}, interval {:?})", options.concurrency, options.interval)
            })
            .collect();
        let tasks: Arc<[Arc<TaskRuntime>]> = self
            .tasks
            .into_iter()
            .zip(stamps)
            .enumerate()
            .map(|(index, (task, stamp))| {
                Arc::new(TaskRuntime {
                    index,
                    stamp,
                    name: task.name,
                    keys: task.keys,
                    options: task.options,
                    handler: task.handler,
                    errors: task.errors,
                    held: HeldTable::default(),
                    outbox: Outbox::default(),
                    estate: Estate::default(),
                    alive: TaskTracker::new(),
                    poke: Notify::new(),
                    beat_now: Notify::new(),
                    rung: Arc::default(),
                    last_beat: AtomicU64::new(0),
                    beat_took: AtomicU64::new(0),
                    claims: Claims::default(),
                })
            })
            .collect();
        let worker = Arc::new(WorkerShared {
            id: self.id,
            store: self.store,
            data: self.data,
            observer: self.observer,
            stopping: CancellationToken::new(),
            hurry: CancellationToken::new(),
            outage: Outage::default(),
            wake: Wake::default(),
            last_tick: Arc::new(AtomicU64::new(clock::now().as_millis())),
            news: Arc::default(),
            large_reads: Semaphore::new(LARGE_READS),
            keeper_gone: AtomicBool::new(false),
            max_jobs: self.cap,
            cap: self.cap.map(|jobs| Arc::new(Semaphore::new(jobs))),
        });
        panics::watch();
        // Dropped with this future, these stop everything that it started.
        let stop_all = worker.stopping.clone().drop_guard();
        let canary = Arc::new(AtomicU64::new(clock::now().as_millis()));
        let end = KeeperEnd::default();
        // Dropped with this future before the worker has stopped, it leaves the rest to the keeper.
        let leaves_behind = LeavesBehind { end: end.clone(), canary: Arc::clone(&canary) };
        let (alive, mut keeper_ended) = tokio::sync::oneshot::channel();
        let thread = keeper::start(Arc::clone(&worker), &tasks, Arc::clone(&canary), end.clone(), alive)
            .map_err(|e| Error::from_io("the keeper thread", e))?;
        let mut crew = Crew::default();
        crew.spawn(WorkerPart::Canary, sing(canary, Arc::clone(&worker.news), end.stop.clone()));
        crew.spawn(WorkerPart::Wake, wake::run(Arc::clone(&worker), Arc::clone(&tasks)));
        for task in tasks.iter() {
            crew.drive(Driver::new(Arc::clone(task), Arc::clone(&worker)), task.index);
        }
        let (prefix, server) = (worker.store.prefix(), worker.store.place());
        tracing::info!(worker_id = %worker.id, tasks = %about.join(", "), prefix, %server, "working");

        // Its future is the user's: it may spend the whole budget of this task each time that it is polled.
        let mut ended = tokio::select! {
            () = shutdown => None,
            // Nothing ends before it is told to.
            ended = tokio::task::unconstrained(crew.next()) => ended.map(|ended| Ended { broken: true, ..ended }),
            _ = tokio::task::unconstrained(&mut keeper_ended) => Some(Ended::keeper()),
        };
        drop(stop_all);
        if ended.is_none() {
            let held: usize = tasks.iter().map(|task| task.held.len()).sum();
            tracing::info!(worker_id = %worker.id, held, ?longest, "stopping");
        }
        tokio::pin!(hurry);
        let (mut left, mut broken, mut keeper_gone) = (None, None, false);
        loop {
            if let Some(Ended { part, task, broken: by_itself, left: jobs }) = ended {
                let leaves = by_itself || jobs.is_some();
                if by_itself {
                    tracing::error!(worker_id = %worker.id, %part, "a part of the worker ended by itself; the worker stops");
                    broken.get_or_insert(part);
                }
                if part == WorkerPart::Keeper {
                    keeper_gone = true;
                    worker.keeper_gone.store(true, Ordering::SeqCst);
                } else if let Some(task) = task.and_then(|index| tasks.get(index)).filter(|_| leaves) {
                    // Nobody reports for these any more; beats would keep them from everybody else.
                    task.claims.let_go();
                    left.get_or_insert_with(Vec::new).extend(task.held.let_go());
                }
            }
            if crew.drivers == 0 {
                break;
            }
            ended = tokio::select! {
                ended = crew.next() => ended,
                _ = &mut keeper_ended, if !keeper_gone => Some(Ended::keeper()),
                () = &mut hurry, if !worker.hurry.is_cancelled() => {
                    tracing::info!(worker_id = %worker.id, "told to stop again: the shutdown grace is over");
                    worker.hurry.cancel();
                    tasks.iter().for_each(|task| task.poke.notify_one());
                    None
                }
            };
        }
        // The keeper ends before the presence says that the worker has, or it might say otherwise once more; the wake block
        // puts back what it has.
        end.stop.cancel();
        drop(leaves_behind);
        let farewell = async {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            // One that was cancelled with the runtime is over too.
            while crew.next().await.is_some() {}
            // What is left may still be reported or claimed by calls that are on their way: their records stay.
            if left.is_none() {
                say_goodbye(&worker, &tasks).await;
            }
        };
        if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
            tracing::debug!(worker_id = %worker.id, "redis was not told that the worker stopped");
        }
        match &left {
            None => tracing::info!(worker_id = %worker.id, left = 0, "stopped"),
            Some(left) => {
                let ids: Vec<&str> = left.iter().take(10).map(JobId::as_str).collect();
                tracing::warn!(worker_id = %worker.id, left = left.len(), ids = %Shown(&ids.join(" ")),
                    "stopped, with jobs left to the sweep of another worker");
            }
        }
        Ok(match (broken, left) {
            (Some(part), left) => StopReason::Broken { part, left: left.unwrap_or_default() },
            (None, None) => StopReason::Shutdown,
            (None, Some(left)) => StopReason::Unclean { left },
        })
    }
}

/// How the keeper learns that its work ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeeperEnd {
    /// The worker has stopped.
    pub(crate) stop: CancellationToken,
    /// The worker's future was dropped: the keeper winds up what is left of it.
    pub(crate) left: CancellationToken,
}

struct LeavesBehind {
    end: KeeperEnd,
    canary: Arc<AtomicU64>,
}

impl Drop for LeavesBehind {
    fn drop(&mut self) {
        if !self.end.stop.is_cancelled() {
            // Nobody sings any more, and no handler is to blame for it.
            self.canary.store(u64::MAX, Ordering::Relaxed);
            self.end.left.cancel();
        }
    }
}

/// Tells Redis that the worker has stopped, again until it is answered.
async fn say_goodbye(worker: &WorkerShared, tasks: &[Arc<TaskRuntime>]) {
    let named: Vec<(&str, &TaskKeys)> = tasks.iter().map(|task| (&*task.name, &*task.keys)).collect();
    let close = async |conn: &mut _| worker.store.close(conn, worker.id.as_str(), &named).await;
    while let Err(e) = worker.store.shared(FAREWELL / 2, close).await {
        tracing::debug!(worker_id = %worker.id, error = %e.chain(), "redis is told again that the worker stopped");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The tasks that a worker runs on the user's runtime.
#[derive(Default)]
struct Crew {
    running: JoinSet<Option<Vec<JobId>>>,
    /// What each is, and which task it drives.
    parts: HashMap<tokio::task::Id, (WorkerPart, Option<usize>)>,
    drivers: usize,
}

/// A part that ended.
struct Ended {
    part: WorkerPart,
    /// The task that it drove.
    task: Option<usize>,
    /// Whether it panicked, or ended before it was told to.
    broken: bool,
    /// Jobs that Redis could not be told about.
    left: Option<Vec<JobId>>,
}

impl Ended {
    fn keeper() -> Ended {
        Ended { part: WorkerPart::Keeper, task: None, broken: true, left: None }
    }
}

impl Crew {
    fn spawn(&mut self, part: WorkerPart, run: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(async move {
            run.await;
            None
        });
        self.parts.insert(id.id(), (part, None));
    }

    fn drive(&mut self, driver: Driver, task: usize) {
        let id = self.running.spawn(driver.run());
        self.parts.insert(id.id(), (WorkerPart::Driver, Some(task)));
        self.drivers += 1;
    }

    /// The next part that ends. Cancel safe.
    async fn next(&mut self) -> Option<Ended> {
        let (id, broken, left) = match self.running.join_next_with_id().await? {
            Ok((id, left)) => (id, false, left),
            Err(e) => (e.id(), true, None),
        };
        let (part, task) = self.parts.remove(&id)?;
        self.drivers -= usize::from(part == WorkerPart::Driver);
        Some(Ended { part, task, broken, left })
    }
}

/// The canary: as long as it sings, the user's runtime runs. It also wakes the handlers for whom the keeper has news, since
/// their wakers may be the user's code.
async fn sing(canary: Arc<AtomicU64>, news: Arc<News>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        canary.store(clock::now().as_millis(), Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            () = news.posted() => {}
            () = stop.cancelled() => {}
        }
        news.tell();
    }
    canary.store(u64::MAX, Ordering::Relaxed);
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: Vec<&str> = self.tasks.iter().map(|task| &*task.name).collect();
        f.debug_struct("Worker").field("id", &self.id).field("tasks", &tasks).field("cap", &self.cap).finish()
    }
}
