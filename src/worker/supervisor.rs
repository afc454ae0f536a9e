//! Supervises a worker: starts, stops and waits for its keeper thread and its loops on the user's runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::driver::Driver;
use super::panics;
use super::stop::{StopReason, WorkerPart};
use super::{wake_blocking, wake_pubsub, workflow_runner};
use crate::backend::keys::TaskKeys;
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::job::id::JobId;
use crate::keeper::thread;
use crate::runtime::held_jobs::News;
use crate::runtime::identity;
use crate::runtime::shared::{self, FAREWELL, KeeperEnd, WorkerShared};
use crate::runtime::task::TaskRuntime;

/// Everything that runs for a worker. If it is dropped early, it stops all loops, and the keeper reports or requeues the jobs. The
/// fields are dropped in their order.
pub(super) struct Supervisor {
    loops: Loops,
    keeper_ended: oneshot::Receiver<()>,
    leaves_behind: LeavesBehind,
    /// Notifies the workflow runner, when dropped, that no driver has anything left to report.
    drivers_over: DropGuard,
    stops_all: DropGuard,
    worker: Arc<WorkerShared>,
    tasks: Arc<[Arc<TaskRuntime>]>,
    /// The part that ended without being stopped, if one did.
    ended: Option<PartEnd>,
    /// The first part that broke.
    broken: Option<WorkerPart>,
    /// Jobs whose outcomes could not be reported to Redis.
    left: Option<Vec<JobId>>,
}

impl Supervisor {
    /// Starts the keeper thread and the loops.
    ///
    /// # Errors
    /// `Unsupported` when the thread cannot be started.
    pub(super) fn start(worker: Arc<WorkerShared>, tasks: Arc<[Arc<TaskRuntime>]>) -> Result<Supervisor, Error> {
        panics::watch();
        let stops_all = worker.stopping.clone().drop_guard();
        let liveness_probe = Arc::clone(&worker.liveness_probe);
        let end = KeeperEnd::default();
        let leaves_behind = LeavesBehind { end: end.clone(), liveness_probe: Arc::clone(&liveness_probe) };
        let (alive, keeper_ended) = oneshot::channel();
        thread::start(Arc::clone(&worker), &tasks, end.clone(), alive)
            .map_err(|e| Error::from_io("the keeper thread", e))?;
        let mut loops = Loops::default();
        loops.spawn(WorkerPart::LivenessProbe, probe_liveness(liveness_probe, Arc::clone(&worker.news), end.stop));
        if worker.store.is_cluster() {
            loops.spawn(WorkerPart::Wake, wake_pubsub::run(Arc::clone(&worker), Arc::clone(&tasks)));
        } else {
            loops.spawn(WorkerPart::Wake, wake_blocking::run(Arc::clone(&worker), Arc::clone(&tasks)));
        }
        let drivers_over = CancellationToken::new();
        if let Some(inbox) = worker.workflow_queue.inbox() {
            loops.spawn(
                WorkerPart::WorkflowRunner,
                workflow_runner::run(Arc::clone(&worker), inbox, drivers_over.clone()),
            );
        }
        for task in tasks.iter() {
            loops.drive(Driver::new(Arc::clone(task), Arc::clone(&worker)), task.index);
        }
        Ok(Supervisor {
            loops,
            keeper_ended,
            leaves_behind,
            drivers_over: drivers_over.drop_guard(),
            stops_all,
            worker,
            tasks,
            ended: None,
            broken: None,
            left: None,
        })
    }

    /// How many jobs are held.
    pub(super) fn held(&self) -> usize {
        self.tasks.iter().map(|task| task.held.len()).sum()
    }

    /// Works until `shutdown` completes or another worker takes its name; returns `false` if a part ends earlier. Then
    /// stops all loops.
    pub(super) async fn works_until(&mut self, shutdown: impl Future<Output = ()>) -> bool {
        // `shutdown` is user code: each poll may use up the whole budget of this task.
        self.ended = tokio::select! {
            () = shutdown => None,
            () = tokio::task::unconstrained(self.worker.stopping.cancelled()) => None,
            // No part ends before it is stopped.
            ended = tokio::task::unconstrained(self.loops.next()) => ended.map(|ended| PartEnd { broken: true, ..ended }),
            _ = tokio::task::unconstrained(&mut self.keeper_ended) => Some(PartEnd::keeper()),
        };
        self.worker.stopping.cancel();
        self.ended.is_none()
    }

    /// Waits until the drivers have stopped. When `hurry` completes, the shutdown grace ends.
    pub(super) async fn wind_down(&mut self, hurry: impl Future<Output = ()>) {
        tokio::pin!(hurry);
        let mut ended = self.ended.take();
        loop {
            if let Some(ended) = ended {
                self.count(ended);
            }
            if self.loops.drivers == 0 {
                return;
            }
            ended = tokio::select! {
                ended = self.loops.next() => ended,
                _ = &mut self.keeper_ended, if !self.worker.is_keeper_gone.load(Ordering::SeqCst) => Some(PartEnd::keeper()),
                () = &mut hurry, if !self.worker.hurry.is_cancelled() => {
                    tracing::info!(worker_id = %self.worker.id, "asked to stop again; the shutdown grace ends now");
                    self.worker.hurry.cancel();
                    self.tasks.iter().for_each(|task| task.poke.notify_one());
                    None
                }
            };
        }
    }

    /// Counts an ended part. Marks the jobs that no part reports any more as lost: further heartbeats would keep them
    /// from other workers.
    fn count(&mut self, PartEnd { part, task, broken, left }: PartEnd) {
        let leaves = broken || left.is_some();
        if broken && !self.worker.is_replaced() {
            tracing::error!(worker_id = %self.worker.id, %part, "a part of the worker ended by itself; the worker stops");
            self.broken.get_or_insert(part);
        }
        if part == WorkerPart::Keeper {
            self.worker.is_keeper_gone.store(true, Ordering::SeqCst);
        } else if let Some(task) = task.and_then(|index| self.tasks.get(index)).filter(|_| leaves) {
            task.claims.let_go();
            self.left.get_or_insert_with(Vec::new).extend(task.held.let_go());
        }
    }

    /// Waits until the keeper and the last loops have ended, records the stop in Redis, and returns why the worker
    /// stopped.
    pub(super) async fn stop(self) -> StopReason {
        let Supervisor { mut loops, keeper_ended, leaves_behind, drivers_over, stops_all, worker, tasks, .. } = self;
        let (broken, left) = (self.broken, self.left);
        // End the keeper first, or it might overwrite what the presence says about the stop. The wake loop returns its
        // markers.
        leaves_behind.end.stop.cancel();
        drop((leaves_behind, drivers_over, stops_all));
        let clean_up = async {
            if !worker.is_keeper_gone.load(Ordering::SeqCst) {
                let _ = keeper_ended.await;
            }
            // A loop that was cancelled with the runtime is over too.
            while loops.next().await.is_some() {}
            // Calls in flight may still report outcomes or claim jobs, so their records must stay.
            if left.is_none() || worker.is_replaced() {
                say_goodbye(&worker, &tasks).await;
            }
        };
        if shared::farewell(clean_up).await.is_none() {
            tracing::debug!(worker_id = %worker.id, "the stop of the worker could not be recorded in redis");
        }
        match &left {
            None => tracing::info!(worker_id = %worker.id, left = 0, "stopped"),
            Some(left) if left.is_empty() => tracing::warn!(worker_id = %worker.id,
                "stopped, with a claim without an answer; the sweep of another worker recovers the jobs that it claimed"),
            Some(left) => {
                let ids: Vec<&str> = left.iter().take(10).map(JobId::as_str).collect();
                tracing::warn!(worker_id = %worker.id, left = left.len(), ids = %Escaped(&ids.join(" ")),
                    "stopped, with jobs left; the sweep of another worker recovers them");
            }
        }
        if worker.is_replaced() || worker.has_successor() && broken.is_none() {
            return StopReason::Replaced { left: left.unwrap_or_default() };
        }
        match (broken, left) {
            (Some(part), left) => StopReason::Broken { part, left: left.unwrap_or_default() },
            (None, None) => StopReason::Shutdown,
            (None, Some(left)) => StopReason::Unclean { left },
        }
    }
}

struct LeavesBehind {
    end: KeeperEnd,
    liveness_probe: Arc<AtomicU64>,
}

impl Drop for LeavesBehind {
    fn drop(&mut self) {
        if !self.end.stop.is_cancelled() {
            // From now on, a missing sign of the probe is not the fault of a handler.
            self.liveness_probe.store(u64::MAX, Ordering::Relaxed);
            self.end.left.cancel();
        }
    }
}

/// Records in Redis that the worker has stopped; repeats until answered.
async fn say_goodbye(worker: &WorkerShared, tasks: &[Arc<TaskRuntime>]) {
    let named: Vec<(&str, &TaskKeys, usize)> =
        tasks.iter().map(|task| (&*task.name, &*task.keys, task.held.len())).collect();
    let (id, boot_id) = (worker.id.as_str(), identity::boot_id());
    // The worker that replaced it may still be recovering its jobs, and must continue.
    let phase = if worker.is_replaced() { "replaced" } else { "stopped" };
    let close = async |conn: &mut _| worker.store.close(conn, id, &named, boot_id.as_deref(), phase).await;
    while let Err(e) = worker.store.shared(FAREWELL / 2, close).await {
        tracing::debug!(worker_id = %worker.id, error = %e.chain(), "the stop of the worker could not be recorded in redis; will retry");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The loops that a worker runs on the user's runtime.
#[derive(Default)]
struct Loops {
    running: JoinSet<Option<Vec<JobId>>>,
    /// The part that each is, and the task that it drives.
    parts: HashMap<tokio::task::Id, (WorkerPart, Option<usize>)>,
    drivers: usize,
}

/// A part that ended.
struct PartEnd {
    part: WorkerPart,
    /// The task that it drove.
    task: Option<usize>,
    /// Whether it panicked, or ended before it was stopped.
    broken: bool,
    /// Jobs whose outcomes could not be reported to Redis.
    left: Option<Vec<JobId>>,
}

impl PartEnd {
    fn keeper() -> PartEnd {
        PartEnd { part: WorkerPart::Keeper, task: None, broken: true, left: None }
    }
}

impl Loops {
    fn spawn(&mut self, part: WorkerPart, run: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(run.map(|()| None).boxed());
        self.parts.insert(id.id(), (part, None));
    }

    fn drive(&mut self, driver: Driver, task: usize) {
        let id = self.running.spawn(driver.run().boxed());
        self.parts.insert(id.id(), (WorkerPart::Driver, Some(task)));
        self.drivers += 1;
    }

    /// The next part that ends. Cancel safe.
    async fn next(&mut self) -> Option<PartEnd> {
        let (id, broken, left) = match self.running.join_next_with_id().await? {
            Ok((id, left)) => (id, false, left),
            Err(e) => (e.id(), true, None),
        };
        let (part, task) = self.parts.remove(&id)?;
        self.drivers -= usize::from(part == WorkerPart::Driver);
        Some(PartEnd { part, task, broken, left })
    }
}

/// The liveness probe of the user's runtime. It also wakes handlers for which the keeper has news, since their wakers
/// may be user code.
async fn probe_liveness(liveness_probe: Arc<AtomicU64>, news: Arc<News>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        liveness_probe.store(clock::now().as_millis(), Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            () = news.posted() => {}
            () = stop.cancelled() => {}
        }
        news.wake_handlers();
    }
    liveness_probe.store(u64::MAX, Ordering::Relaxed);
}
