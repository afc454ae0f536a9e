//! A worker's run, from its check of the server to the reason for which it stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::builder::Worker;
use super::panics::guarded;
use super::signal::Signals;
use super::stop::StopReason;
use super::supervisor::Supervisor;
use crate::backend::declare::{self, Declared};
use crate::backend::partitions::other_number;
use crate::backend::server;
use crate::backoff::Pauses;
use crate::clock;
use crate::config_error::Faults;
use crate::error::Error;
use crate::escape::Escaped;
use crate::options::resolved::Resolved;
use crate::options::stall::OnCrash;
use crate::runtime::identity;
use crate::runtime::shared::{self, FAREWELL, WorkerShared};
use crate::runtime::task::{Definition, TaskRuntime};

/// A stall interval below this may be shorter than a failover, so the worker warns.
const OVER_FAILOVERS: Duration = Duration::from_secs(3);

/// How many tasks or partitions are checked at a time at the start.
const TOGETHER: usize = 32;

impl Worker {
    /// Works until the process ends. See [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    pub async fn run(self) -> Result<StopReason, Error> {
        self.run_until(std::future::pending()).await
    }

    /// Works until the process receives a signal to stop, see [`shutdown_signal`](crate::shutdown_signal). A second
    /// signal ends the shutdown grace. See [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    ///
    /// # Cancel safety
    /// As [`Worker::run_until`].
    pub async fn run_until_signal(self) -> Result<StopReason, Error> {
        // Both receive every signal, so `second` skips the one that began the shutdown. A shutdown may also begin without a signal,
        // when a part of the worker breaks.
        let (mut first, mut second, has_signal) = (Signals::listen(), Signals::listen(), AtomicBool::new(false));
        let shutdown = async {
            first.next().await;
            has_signal.store(true, Ordering::SeqCst);
        };
        let hurry = async {
            if has_signal.load(Ordering::SeqCst) {
                second.next().await;
            }
            second.next().await;
        };
        self.run_with(shutdown, hurry).await
    }

    /// Works until `shutdown` completes, then stops claiming. Handlers may continue for the shutdown grace; then they
    /// are cancelled, and after the cancel grace they are dropped. Unfinished jobs return to the front of their lists,
    /// with no stall counted and no attempt used. [`Worker::max_shutdown_time`] returns how long that takes.
    ///
    /// While the server is unreachable, also at the start, the worker waits for it. A shutdown also ends this wait.
    ///
    /// # Errors
    /// If the worker cannot start, and waiting does not help:
    ///
    /// - [`Error::Connect`] if the password is wrong, or what answers is not Redis.
    /// - [`Error::Denied`] or [`Error::Unsupported`] if a right is missing, the server is too old, or a newer version
    ///   of Heartline wrote the task.
    /// - [`Error::Server`] if a key of a task has a wrong type.
    /// - [`Error::Config`] if there is no task to work, or data that a task needs is missing.
    ///
    /// # Cancel safety
    /// If the future is dropped, or aborted with its task or its runtime, the handlers are dropped. A separate thread sends heartbeats
    /// until all handlers are gone, for at most the cancel grace and a second. It then records finished outcomes and requeues the other
    /// jobs, if the process lives that long. Prefer to complete `shutdown`, which lets handlers finish.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<StopReason, Error> {
        self.run_with(shutdown, std::future::pending()).await
    }

    /// As [`Worker::run_until`]. When `hurry` completes after `shutdown`, the shutdown grace ends.
    pub(crate) async fn run_with(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<StopReason, Error> {
        let (monitor, id) = (self.monitor(), self.id().clone());
        let ended = self.start_and_work(shutdown, hurry).await;
        // The caller may discard the error. A log subscriber is user code.
        if let Err(e) = &ended {
            let _ = guarded(|| tracing::error!(worker_id = %id, error = %e.chain(), "the worker ended with an error"));
        }
        monitor.ended(&ended);
        ended
    }

    async fn start_and_work(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<StopReason, Error> {
        let mut faults = Faults::default();
        self.tasks
            .iter()
            .flat_map(|task| self.data.faults(&task.name, &task.needs))
            .for_each(|fault| faults.push(fault));
        if self.tasks.is_empty() {
            let fix = "call App::register or App::task before App::worker, and name the task in Worker::tasks if that is used";
            faults.add("worker", "without a task", "must have one with a handler", fix);
        }
        if self.cap == Some(0) {
            faults.add("max_jobs", "0", "must be at least 1", "use 1 or more, or leave it out for no limit");
        }
        faults.gather(self.identity.check());
        self.presence_retention.check("presence_retention", &mut faults);
        faults.finish()?;
        tokio::pin!(shutdown);
        let (mut waits, announced) = (None, AtomicBool::new(false));
        let starting = async {
            let mut pauses = Pauses::until_answered();
            loop {
                let e = match self.start(&announced).await {
                    Err(e) if e.is_retryable() => e,
                    started => return started,
                };
                if waits.is_none() {
                    tracing::warn!(worker_id = %self.id, error = %e.chain(), "the worker cannot start yet; it waits for redis");
                }
                waits.get_or_insert_with(clock::now);
                tokio::time::sleep(pauses.next()).await;
            }
        };
        let started = tokio::select! {
            biased;
            () = &mut shutdown => None,
            started = starting => Some(started),
        };
        let Some(tasks) = started.transpose()? else {
            self.leave(&announced).await;
            return Ok(StopReason::Shutdown);
        };
        if self.store.address.fails_over() {
            for task in self.tasks.iter().filter(|task| task.options.interval < OVER_FAILOVERS) {
                let interval_ms = task.options.interval.as_millis() as u64;
                tracing::warn!(task = %task.name, interval_ms, "a failover may take longer than the stall interval");
            }
        }
        let single =
            |task: &&Definition| task.options.on_crash == OnCrash::Retry && task.options.retry.max_attempts() == 1;
        for task in self.tasks.iter().filter(single) {
            tracing::warn!(task = %task.name, "on_crash(Retry) without a second attempt fails every job whose worker dies");
        }
        if let Some(since) = waits {
            let away_ms = clock::now().since(since).as_millis() as u64;
            tracing::info!(worker_id = %self.id, away_ms, "redis is available; the worker starts");
        }
        self.work(tasks, shutdown, hurry).await
    }

    /// Checks the server and declares the tasks. Returns one definition for each partition, with the time of its declaration, ms by the
    /// server's clock. It may be dropped at any time. `announced` says whether Redis knows of the worker.
    async fn start(&self, announced: &AtomicBool) -> Result<Vec<(Definition, u64)>, Error> {
        self.store.ready().await?;
        // Check all tasks before declaring any: a start that is refused must change none.
        let checks: Vec<_> = self.tasks.iter().map(|task| self.check_task(task).boxed()).collect();
        stream::iter(checks).buffered(TOGETHER).try_collect::<()>().await?;
        announced.store(true, Ordering::SeqCst);
        // Announce the worker before its first claim: the death of a worker that is not listed is never found.
        if self.store.is_cluster() {
            self.store.call(async |conn| self.store.enlist(conn, self.id.as_str()).await).await?;
        }
        let mut facts = identity::presence(&identity::process_facts(), self.tasks.iter().map(|task| (&*task.name, 0)));
        facts.extend(self.identity.name().into_iter().flat_map(|name| self.named_facts(name)));
        match self.store.call(async |conn| self.store.announce(conn, self.id.as_str(), &facts).await).await {
            // In a cluster, the node that has the presence, or the one that has the list of workers of this boot, may be unreachable.
            // The keeper repeats the write every 5 s.
            Err(e) if self.store.is_cluster() && e.is_outage() => {
                tracing::debug!(error = %e.chain(), "a part of the presence could not be written; will retry");
            }
            told => told?,
        }
        self.store.works_as(self.id.as_str());
        let declares: Vec<_> = self.tasks.iter().map(|task| self.declare_task(task).boxed()).collect();
        let declared: Vec<Vec<_>> = stream::iter(declares).buffered(TOGETHER).try_collect().await?;
        if let Some(name) = self.identity.name() {
            self.take_name(name).await?;
        }
        Ok(declared.into_iter().flatten().collect())
    }

    /// Checks that the task has the expected partitions, and that the user of this worker has all rights for it.
    async fn check_task(&self, task: &Definition) -> Result<(), Error> {
        let rights = self.store.call(async |conn| server::check_rights(conn, &task.keys).await);
        tokio::try_join!(self.check_partitions(task), rights).map(drop)
    }

    /// Reads how many partitions the task has.
    ///
    /// # Errors
    /// `Config` if the options ask for another number, `Unsupported` if a newer version of this crate wrote the task.
    async fn check_partitions(&self, task: &Definition) -> Result<(), Error> {
        let written = async |conn: &mut _| declare::written_partitions(conn, &task.keys).await;
        let (has, wanted) = (self.store.call(written).await?, task.options.partitions);
        if let (Some(wanted), Some(has)) = (wanted, has)
            && wanted != has
        {
            return Err(other_number(&task.name, wanted, has));
        }
        let partitions = has.or(wanted).unwrap_or(1);
        if let Some(fault) = task.options.limits.too_small(partitions) {
            return Err(Error::Config(fault.into()));
        }
        self.store.tables(&task.name).learn(partitions);
        Ok(())
    }

    /// Records in Redis that an unfinished start has ended.
    async fn leave(&self, announced: &AtomicBool) {
        if !announced.load(Ordering::SeqCst) {
            return;
        }
        let (id, boot_id) = (self.id.as_str(), identity::boot_id());
        let close = async |conn: &mut _| self.store.close(conn, id, &[], boot_id.as_deref(), "stopped").await;
        if let Some(Err(e)) = shared::farewell(self.store.shared(FAREWELL, close)).await {
            tracing::debug!(worker_id = %self.id, error = %e.chain(), "the stop of the worker could not be recorded in redis");
        }
    }

    /// Writes the options of a task, and registers it. Returns its partitions, with the time of each declaration.
    async fn declare_task(&self, task: &Definition) -> Result<Vec<(Definition, u64)>, Error> {
        let tables = self.store.tables(&task.name);
        if let Some(wanted) = task.options.partitions {
            tables.claim(&self.store, wanted).await?;
        }
        let known = tables.parts();
        let declared = match self.declare_all(task).await {
            // A producer has just set the number of partitions. A worker without the option uses that number.
            Err(e) if !e.is_retryable() && task.options.partitions.is_none() => {
                tables.refresh(&self.store).await?;
                if tables.parts() == known {
                    return Err(e);
                }
                self.declare_all(task).await?
            }
            answer => answer?,
        };
        match self.store.call(async |conn| self.store.register(conn, &task.name).await).await {
            Err(e) if self.store.is_cluster() && e.is_outage() => {}
            // The list is only for people, so a failure must not keep the worker from its jobs.
            Err(e) if !e.is_retryable() => {
                tracing::warn!(task = %task.name, error = %e.chain(), "the task could not be added to the list of tasks");
            }
            answer => answer?,
        }
        Ok(declared)
    }

    /// Writes the options of a task in each of its partitions.
    async fn declare_all(&self, task: &Definition) -> Result<Vec<(Definition, u64)>, Error> {
        let parts = task.clone().of_tables(&self.store.tables(&task.name).all());
        let declares: Vec<_> = parts.into_iter().map(|part| self.declare(part).boxed()).collect();
        stream::iter(declares).buffered(TOGETHER).try_collect().await
    }

    /// Writes the options of a task or of a partition. Returns the time of that.
    async fn declare(&self, task: Definition) -> Result<(Definition, u64), Error> {
        let worker = self.id.as_str();
        let declare = async |conn: &mut _| declare::declare(conn, &task.keys, worker, None, &task.options).await;
        match self.store.call(declare).await? {
            Declared::Ours(stamp, changed) => {
                // The same for every partition, so log it once.
                for (option, old, new) in changed.into_iter().filter(|_| task.keys.part() == 0) {
                    let (old, new) = (Escaped(&old), Escaped(&new));
                    tracing::info!(task = %task.name, option, %old, %new, "an option of the task changed with this start");
                }
                Ok((task, stamp))
            }
            Declared::Theirs(stamp) => Ok((task, stamp)),
        }
    }

    /// Works with a supervisor until it is asked to stop, and lets it wind down.
    async fn work(
        self,
        tasks: Vec<(Definition, u64)>,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<StopReason, Error> {
        let longest = self.max_shutdown_time();
        let describe = |task: &Definition| {
            let Resolved { concurrency, interval, .. } = *task.options;
            let parts = match self.store.tables(&task.name).parts() {
                1 => String::new(),
                parts => format!(", {parts} partitions"),
            };
            format!("{} (concurrency {concurrency}, interval {interval:?}{parts})", task.name)
        };
        let about: Vec<String> = self.tasks.iter().map(describe).collect();
        let runtime = |(index, (task, stamp))| Arc::new(TaskRuntime::new(index, task, stamp, &self.store));
        let tasks: Arc<[_]> = tasks.into_iter().enumerate().map(runtime).collect();
        let worker = Arc::new(WorkerShared::new(
            self.id,
            self.store,
            self.data,
            self.observers.into(),
            self.cap,
            self.presence_retention.into(),
        ));
        self.ran.store(true, Ordering::Relaxed);
        let mut supervisor = Supervisor::start(Arc::clone(&worker), Arc::clone(&tasks))?;
        self.monitor.runs(&worker, &tasks);
        let (prefix, server) = (worker.store.prefix(), worker.store.place());
        // A log subscriber may panic, and by now jobs are held.
        let _ = guarded(|| {
            tracing::info!(worker_id = %worker.id, tasks = %about.join(", "), prefix, %server, "working");
        });
        if supervisor.works_until(shutdown).await {
            let _ = guarded(|| tracing::info!(worker_id = %worker.id, held = supervisor.held(), ?longest, "stopping"));
        }
        supervisor.wind_down(hurry).await;
        Ok(supervisor.stop().await)
    }
}
