//! The crew of a worker: its keeper thread, and its loops on the user's runtime. Started, told to stop, waited for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::driver::Driver;
use super::panics;
use super::stop::{StopReason, WorkerPart};
use super::{courier, ear, wake};
use crate::clock;
use crate::error::Error;
use crate::job::id::JobId;
use crate::keeper::thread;
use crate::process::held::News;
use crate::process::identity;
use crate::process::shared::{self, FAREWELL, KeeperEnd, WorkerShared};
use crate::process::task::TaskRuntime;
use crate::shown::Shown;
use crate::store::keys::TaskKeys;

/// What works for a worker. Dropped before it has stopped, it stops everything that it started, and leaves the rest to the
/// keeper. The fields are dropped in their order.
pub(super) struct Crew {
    loops: Loops,
    thread: std::thread::JoinHandle<()>,
    keeper_ended: oneshot::Receiver<()>,
    leaves_behind: LeavesBehind,
    /// Tells the courier that no driver has anything to say any more.
    drivers_over: DropGuard,
    stops_all: DropGuard,
    worker: Arc<WorkerShared>,
    tasks: Arc<[Arc<TaskRuntime>]>,
    /// The part that ended before it was told to, when one did.
    ended: Option<PartEnd>,
    toll: Toll,
}

/// What did not go as it should.
#[derive(Default)]
struct Toll {
    broken: Option<WorkerPart>,
    left: Option<Vec<JobId>>,
    keeper_gone: bool,
}

impl Crew {
    /// Starts the keeper thread and the loops.
    ///
    /// # Errors
    /// `Unsupported` when the thread cannot be started.
    pub(super) fn start(worker: Arc<WorkerShared>, tasks: Arc<[Arc<TaskRuntime>]>) -> Result<Crew, Error> {
        panics::watch();
        let stops_all = worker.stopping.clone().drop_guard();
        let canary = Arc::clone(&worker.canary);
        let end = KeeperEnd::default();
        let leaves_behind = LeavesBehind { end: end.clone(), canary: Arc::clone(&canary) };
        let (alive, keeper_ended) = oneshot::channel();
        let thread = thread::start(Arc::clone(&worker), &tasks, end.clone(), alive)
            .map_err(|e| Error::from_io("the keeper thread", e))?;
        let mut loops = Loops::default();
        loops.spawn(WorkerPart::Canary, sing(canary, Arc::clone(&worker.news), end.stop));
        if worker.store.is_cluster() {
            loops.spawn(WorkerPart::Wake, ear::run(Arc::clone(&worker), Arc::clone(&tasks)));
        } else {
            loops.spawn(WorkerPart::Wake, wake::run(Arc::clone(&worker), Arc::clone(&tasks)));
        }
        let drivers_over = CancellationToken::new();
        if let Some(inbox) = worker.desk.inbox() {
            loops.spawn(WorkerPart::Courier, courier::run(Arc::clone(&worker), inbox, drivers_over.clone()));
        }
        for task in tasks.iter() {
            loops.drive(Driver::new(Arc::clone(task), Arc::clone(&worker)), task.index);
        }
        let toll = Toll::default();
        let drivers_over = drivers_over.drop_guard();
        Ok(Crew {
            loops,
            thread,
            keeper_ended,
            leaves_behind,
            drivers_over,
            stops_all,
            worker,
            tasks,
            ended: None,
            toll,
        })
    }

    /// How many jobs are held.
    pub(super) fn held(&self) -> usize {
        self.tasks.iter().map(|task| task.held.len()).sum()
    }

    /// Works until `shutdown` completes or another worker takes its name, or a part ends before, which is `false`; then tells all loops
    /// to stop.
    pub(super) async fn works_until(&mut self, shutdown: impl Future<Output = ()>) -> bool {
        // Its future is the user's: it may spend the whole budget of this task each time that it is polled.
        self.ended = tokio::select! {
            () = shutdown => None,
            () = tokio::task::unconstrained(self.worker.stopping.cancelled()) => None,
            // Nothing ends before it is told to.
            ended = tokio::task::unconstrained(self.loops.next()) => ended.map(|ended| PartEnd { broken: true, ..ended }),
            _ = tokio::task::unconstrained(&mut self.keeper_ended) => Some(PartEnd::keeper()),
        };
        self.worker.stopping.cancel();
        self.ended.is_none()
    }

    /// Waits until the drivers have stopped. When `hurry` completes, the shutdown grace is over.
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
                _ = &mut self.keeper_ended, if !self.toll.keeper_gone => Some(PartEnd::keeper()),
                () = &mut hurry, if !self.worker.hurry.is_cancelled() => {
                    tracing::info!(worker_id = %self.worker.id, "told to stop again: the shutdown grace is over");
                    self.worker.hurry.cancel();
                    self.tasks.iter().for_each(|task| task.poke.notify_one());
                    None
                }
            };
        }
    }

    /// Counts a part that ended, and lets go of the jobs for which nobody reports any more: beats would keep them from
    /// everybody else.
    fn count(&mut self, PartEnd { part, task, broken, left }: PartEnd) {
        let leaves = broken || left.is_some();
        if broken && !self.worker.is_replaced() {
            tracing::error!(worker_id = %self.worker.id, %part, "a part of the worker ended by itself; the worker stops");
            self.toll.broken.get_or_insert(part);
        }
        if part == WorkerPart::Keeper {
            self.toll.keeper_gone = true;
            self.worker.set_keeper_gone();
        } else if let Some(task) = task.and_then(|index| self.tasks.get(index)).filter(|_| leaves) {
            task.claims.let_go();
            self.toll.left.get_or_insert_with(Vec::new).extend(task.held.let_go());
        }
    }

    /// Waits until the keeper and the last loops have ended, tells Redis, and says why the worker stopped.
    pub(super) async fn stop(self) -> StopReason {
        let Crew { mut loops, thread, leaves_behind, drivers_over, stops_all, worker, tasks, toll, .. } = self;
        let Toll { broken, left, .. } = toll;
        // The keeper ends before the presence says that the worker has, or it might say otherwise once more; the wake block
        // puts back what it has.
        leaves_behind.end.stop.cancel();
        drop((leaves_behind, drivers_over, stops_all));
        let clean_up = async {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            // One that was cancelled with the runtime is over too.
            while loops.next().await.is_some() {}
            // What is left may still be reported or claimed by calls that are on their way: their records stay.
            if left.is_none() || worker.is_replaced() {
                say_goodbye(&worker, &tasks).await;
            }
        };
        if shared::farewell(clean_up).await.is_none() {
            tracing::debug!(worker_id = %worker.id, "redis was not told that the worker stopped");
        }
        match &left {
            None => tracing::info!(worker_id = %worker.id, left = 0, "stopped"),
            Some(left) if left.is_empty() => tracing::warn!(worker_id = %worker.id,
                "stopped, with a claim that was not answered: what it brought is left to the sweep of another worker"),
            Some(left) => {
                let ids: Vec<&str> = left.iter().take(10).map(JobId::as_str).collect();
                tracing::warn!(worker_id = %worker.id, left = left.len(), ids = %Shown(&ids.join(" ")),
                    "stopped, with jobs left to the sweep of another worker");
            }
        }
        if worker.is_replaced() || worker.is_succeeded() && broken.is_none() {
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
    let named: Vec<(&str, &TaskKeys, usize)> =
        tasks.iter().map(|task| (&*task.name, &*task.keys, task.held.len())).collect();
    let (id, boot_id) = (worker.id.as_str(), identity::boot_id());
    // Whoever replaced it may not have taken all its jobs yet, and is to go on.
    let phase = if worker.is_replaced() { "replaced" } else { "stopped" };
    let close = async |conn: &mut _| worker.store.close(conn, id, &named, boot_id.as_deref(), phase).await;
    while let Err(e) = worker.store.shared(FAREWELL / 2, close).await {
        tracing::debug!(worker_id = %worker.id, error = %e.chain(), "redis is told again that the worker stopped");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The tasks that a worker runs on the user's runtime.
#[derive(Default)]
struct Loops {
    running: JoinSet<Option<Vec<JobId>>>,
    /// What each is, and which task it drives.
    parts: HashMap<tokio::task::Id, (WorkerPart, Option<usize>)>,
    drivers: usize,
}

/// A part that ended.
struct PartEnd {
    part: WorkerPart,
    /// The task that it drove.
    task: Option<usize>,
    /// Whether it panicked, or ended before it was told to.
    broken: bool,
    /// Jobs that Redis could not be told about.
    left: Option<Vec<JobId>>,
}

impl PartEnd {
    fn keeper() -> PartEnd {
        PartEnd { part: WorkerPart::Keeper, task: None, broken: true, left: None }
    }
}

impl Loops {
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
