//! A worker: one driver a task on the user's runtime, and a keeper on a thread of its own.

mod claims;
pub(crate) mod clock;
pub(crate) mod driver;
pub(crate) mod held;
pub(crate) mod identity;
pub(crate) mod keeper;
pub(crate) mod runner;
mod wake;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use identity::WorkerId;

use self::claims::Claims;
use self::clock::Moment;
use self::driver::{Driver, Outbox};
use self::held::HeldTable;
use self::runner::Handler;
use self::wake::Wake;
use crate::error::{ConfigError, ConfigErrors, Error};
use crate::job::JobId;
use crate::options::Resolved;
use crate::store::{RESPONSE_TIMEOUT, Store, TaskKeys, jobs};

/// How long the clean-up after the last job may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// What driver, keeper and runners of one task share.
pub(crate) struct TaskRuntime {
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) options: Arc<Resolved>,
    pub(crate) handler: Handler,
    pub(crate) held: HeldTable,
    pub(crate) outbox: Outbox,
    /// Rings when the driver has something to look at.
    pub(crate) poke: Notify,
    /// Rings when the keeper is to beat at once.
    pub(crate) beat_now: Arc<Notify>,
    /// When the last beat that was answered had been sent; 0 before the first.
    last_beat: AtomicU64,
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

    pub(crate) fn beat_answered(&self, sent: Moment) {
        self.last_beat.fetch_max(sent.as_millis().max(1), Ordering::SeqCst);
    }

    /// Whether jobs may be claimed: a keeper that cannot beat could not keep them.
    pub(crate) fn beats_are_fresh(&self) -> bool {
        let last = self.last_beat();
        last.as_millis() > 0 && clock::now().since(last) < self.beat_period() * 2
    }
}

/// What all tasks of one worker share.
pub(crate) struct WorkerShared {
    pub(crate) id: WorkerId,
    pub(crate) store: Arc<Store>,
    pub(crate) stopping: CancellationToken,
    pub(crate) wake: Wake,
    /// When the keeper looked at the deadlines last, ms on the boot-time clock.
    pub(crate) last_tick: Arc<AtomicU64>,
    keeper_gone: AtomicBool,
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to, and every job that it held was recorded or handed back.
    Shutdown,
    /// It was asked to, and Redis could not be told about these jobs in time. The sweep of another worker finds them
    /// and counts a stall for each.
    Unclean {
        /// The jobs that were left. None are named when all that is open is a claim that Redis did not answer.
        left: Vec<JobId>,
    },
    /// Its keeper thread ended, which is a bug: without beats it could not keep its jobs.
    KeeperEnded {
        /// The jobs that were left.
        left: Vec<JobId>,
    },
}

/// Works the tasks of an [`App`](crate::App). Made by [`App::worker`](crate::App::worker).
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) tasks: Vec<Definition>,
    pub(crate) cap: Option<usize>,
    pub(crate) id: WorkerId,
}

/// A task with a handler.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) options: Arc<Resolved>,
    pub(crate) handler: Handler,
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

    /// Works until `shutdown` completes, then stops claiming, lets handlers go on for the shutdown grace, tells them to
    /// stop, drops them after the cancel grace, and hands back what is unfinished: to the front of its list, with no
    /// stall counted and no attempt used.
    ///
    /// # Errors
    /// What keeps it from starting: `Connect`, `Unsupported` (server or wire version), `Config` (no task to work).
    /// Once it runs, a server that is away is waited for.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it leaves the jobs that it holds to the sweep of another worker. Complete `shutdown`
    /// instead.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<StopReason, Error> {
        ConfigErrors::check(if self.tasks.is_empty() {
            let fix = "declare one with App::task before App::worker is called, and name it in Worker::only";
            vec![ConfigError::new("worker", "without a task", "must have one with a handler", fix)]
        } else {
            Vec::new()
        })
        .map_err(Error::Config)?;
        self.store.ready().await?;
        for task in &self.tasks {
            let declared = async |conn: &mut _| jobs::declare(conn, &task.keys, &task.options).await;
            for (option, old, new) in self.store.shared(RESPONSE_TIMEOUT, declared).await? {
                tracing::info!(task = %task.name, option, old, new, "an option of the task changed with this start");
            }
        }
        self.work(shutdown).await
    }

    async fn work(self, shutdown: impl Future<Output = ()>) -> Result<StopReason, Error> {
        let tasks: Arc<[Arc<TaskRuntime>]> = self
            .tasks
            .into_iter()
            .enumerate()
            .map(|(index, task)| {
                Arc::new(TaskRuntime {
                    index,
                    name: task.name,
                    keys: task.keys,
                    options: task.options,
                    handler: task.handler,
                    held: HeldTable::default(),
                    outbox: Outbox::default(),
                    poke: Notify::new(),
                    beat_now: Arc::new(Notify::new()),
                    last_beat: AtomicU64::new(0),
                    claims: Claims::default(),
                })
            })
            .collect();
        let worker = Arc::new(WorkerShared {
            id: self.id,
            store: self.store,
            stopping: CancellationToken::new(),
            wake: Wake::default(),
            last_tick: Arc::new(AtomicU64::new(clock::now().as_millis())),
            keeper_gone: AtomicBool::new(false),
            cap: self.cap.map(|jobs| Arc::new(Semaphore::new(jobs))),
        });
        // Dropped with this future, these stop everything that it started.
        let stop_all = worker.stopping.clone().drop_guard();
        let keeper_stop = CancellationToken::new();
        let keeper_guard = keeper_stop.clone().drop_guard();
        let canary = Arc::new(AtomicU64::new(clock::now().as_millis()));
        let (alive, mut keeper_ended) = tokio::sync::oneshot::channel();
        let thread = keeper::start(Arc::clone(&worker), &tasks, Arc::clone(&canary), keeper_stop, alive)
            .map_err(|e| Error::from_io("the keeper thread", e))?;
        let mut services = JoinSet::new();
        services.spawn(sing(canary, worker.stopping.clone()));
        services.spawn(wake::run(Arc::clone(&worker), Arc::clone(&tasks)));
        let mut drivers = JoinSet::new();
        for task in tasks.iter() {
            drivers.spawn(Driver::new(Arc::clone(task), Arc::clone(&worker)).run());
        }
        tracing::info!(worker_id = %worker.id, tasks = tasks.len(), "working");

        let mut keeper_gone = tokio::select! {
            () = shutdown => false,
            _ = &mut keeper_ended => true,
        };
        worker.keeper_gone.store(keeper_gone, Ordering::SeqCst);
        drop(stop_all);
        let mut left = None;
        loop {
            tokio::select! {
                driver = drivers.join_next() => match driver {
                    Some(Ok(None)) => {}
                    Some(Ok(Some(jobs))) => left.get_or_insert_with(Vec::new).extend(jobs),
                    Some(Err(e)) => {
                        tracing::error!(error = %e, "a driver ended by itself");
                        left.get_or_insert_with(Vec::new);
                    }
                    None => break,
                },
                _ = &mut keeper_ended, if !keeper_gone => {
                    keeper_gone = true;
                    worker.keeper_gone.store(true, Ordering::SeqCst);
                }
            }
        }
        // The keeper ends before the presence goes, or it might tell it once more; the wake block puts back what it has.
        drop(keeper_guard);
        let farewell = async {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            // One that was cancelled with the runtime is over too.
            while services.join_next().await.is_some() {}
            if left.is_none() {
                worker.store.shared(FAREWELL, async |conn| worker.store.forget(conn, worker.id.as_str()).await).await?;
            }
            Ok::<(), Error>(())
        };
        if !matches!(tokio::time::timeout(FAREWELL, farewell).await, Ok(Ok(()))) {
            tracing::debug!(worker_id = %worker.id, "presence was left behind");
        }
        tracing::info!(worker_id = %worker.id, left = left.as_ref().map_or(0, Vec::len), "stopped");
        Ok(match left {
            left if keeper_gone => StopReason::KeeperEnded { left: left.unwrap_or_default() },
            None => StopReason::Shutdown,
            Some(left) => StopReason::Unclean { left },
        })
    }
}

/// The canary: as long as it sings, the user's runtime runs.
async fn sing(canary: Arc<AtomicU64>, stopping: CancellationToken) {
    while !stopping.is_cancelled() {
        canary.store(clock::now().as_millis(), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    canary.store(u64::MAX, Ordering::Relaxed);
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: Vec<&str> = self.tasks.iter().map(|task| &*task.name).collect();
        f.debug_struct("Worker").field("id", &self.id).field("tasks", &tasks).field("cap", &self.cap).finish()
    }
}
