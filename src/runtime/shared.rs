//! What all tasks of one worker share.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::held_jobs::News;
use super::incidents::{Change, Incidents};
use super::observer::Observer;
use super::permits::Permits;
use super::rights::Rights;
use super::state::Data;
use super::stats::WorkerTally;
use super::wake::Wake;
use super::workflow_queue::WorkflowQueue;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::narrow::Narrow;
use crate::clock;
use crate::error::Error;
use crate::mutex::Mutex;
use crate::options::retention::LimitMs;
use crate::worker_id::WorkerId;

/// How long the clean-up after the last job may take.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);

/// The wait is split into this many parts, see [`farewell`].
const PARTS: u32 = 30;

/// Waits for the clean-up after the last job; `None` if it takes too long. A freeze of the process counts as one part
/// at most, so that the clean-up still happens afterwards.
pub(crate) async fn farewell<T>(clean_up: impl Future<Output = T>) -> Option<T> {
    let mut clean_up = pin!(clean_up);
    for _ in 0..PARTS {
        if let Ok(done) = tokio::time::timeout(FAREWELL / PARTS, &mut clean_up).await {
            return Some(done);
        }
    }
    None
}

pub(crate) struct WorkerShared {
    pub(crate) id: WorkerId,
    pub(crate) store: Arc<Store>,
    /// What handlers share.
    pub(crate) data: Arc<Data>,
    pub(crate) observers: Arc<[Arc<dyn Observer>]>,
    pub(crate) stopping: CancellationToken,
    /// Ends the shutdown grace at once.
    pub(crate) hurry: CancellationToken,
    pub(crate) incidents: Incidents,
    pub(crate) wake: Wake,
    /// When the keeper last checked the deadlines, ms on the boot-time clock.
    pub(crate) last_tick: Arc<AtomicU64>,
    /// When the user's runtime last showed that it runs, ms on the boot-time clock; far in the future once the probe
    /// has ended.
    pub(crate) liveness_probe: Arc<AtomicU64>,
    /// When the process last resumed after a freeze, ms: handlers are not to blame for the time before.
    pub(crate) resumed: AtomicU64,
    /// What the keeper has to report to handlers.
    pub(crate) news: Arc<News>,
    /// Permits to read large values, by primary epoch: a frozen primary must not block reads from others.
    large_reads: Mutex<HashMap<u64, Arc<Semaphore>>>,
    /// Whether answers to claims should be small.
    pub(crate) narrow: Narrow,
    /// Whether every slot is held by a handler that waits for another job. Jobs that were claimed ahead are then
    /// handed back: a handler may be waiting for one of them.
    pub(crate) clogged: AtomicBool,
    /// Whether a person asked this worker to claim no more jobs.
    pub(crate) quiet: AtomicBool,
    pub(crate) is_keeper_gone: AtomicBool,
    /// Whether this worker was declared dead or replaced in Redis.
    replaced: AtomicBool,
    /// Whether another worker took the exclusive name of this one and asked it to stop.
    has_successor: AtomicBool,
    pub(crate) slots: Permits,
    pub(crate) workflow_queue: WorkflowQueue,
    pub(crate) flow_rights: Rights,
    pub(crate) tally: WorkerTally,
    /// How long dead workers are listed, and how many.
    pub(crate) presence_retention: LimitMs,
}

/// How many large values of one primary a worker reads at a time.
const LARGE_READS: usize = 4;

impl WorkerShared {
    /// The shared state of a worker that holds at most `max_jobs` jobs.
    pub(crate) fn new(
        id: WorkerId,
        store: Arc<Store>,
        data: Arc<Data>,
        observers: Arc<[Arc<dyn Observer>]>,
        max_jobs: Option<usize>,
        presence_retention: LimitMs,
    ) -> WorkerShared {
        WorkerShared {
            id,
            store,
            data,
            observers,
            stopping: CancellationToken::new(),
            hurry: CancellationToken::new(),
            incidents: Incidents::default(),
            wake: Wake::default(),
            last_tick: Arc::new(AtomicU64::new(clock::now().as_millis())),
            liveness_probe: Arc::new(AtomicU64::new(clock::now().as_millis())),
            resumed: AtomicU64::new(0),
            news: Arc::default(),
            large_reads: Mutex::default(),
            narrow: Narrow::default(),
            clogged: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            is_keeper_gone: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            has_successor: AtomicBool::new(false),
            slots: Permits::new(max_jobs),
            workflow_queue: WorkflowQueue::default(),
            flow_rights: Rights::at(0),
            tally: WorkerTally::default(),
            presence_retention,
        }
    }

    /// Records that a part on the user's runtime got no answer, or was refused.
    pub(crate) fn failed(&self, part: &'static str, of: (usize, &str), e: &Error) {
        self.log(self.incidents.failed(part, of, e, e.is_outage()));
    }

    /// Records that a part on the user's runtime was answered.
    pub(crate) fn answered(&self, part: &'static str, of: (usize, &str)) {
        self.log(self.incidents.answered(part, of));
    }

    /// Logs at once. The keeper must not call this: a subscriber may block.
    pub(crate) fn log(&self, changes: Vec<Change>) {
        changes.iter().for_each(|change| change.log(&self.id));
    }

    /// Permits to read large values of a task.
    pub(crate) fn large_reads(&self, keys: &TaskKeys) -> Arc<Semaphore> {
        let mut turns = self.large_reads.lock();
        // Drop the permits of former primaries, which are not in use.
        turns.retain(|_, turns| Arc::strong_count(turns) > 1);
        let own =
            turns.entry(self.store.primary_epoch_of(keys)).or_insert_with(|| Arc::new(Semaphore::new(LARGE_READS)));
        Arc::clone(own)
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// Other workers have the jobs of this worker. It stops, and its handlers get no grace.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::SeqCst);
        self.stopping.cancel();
        self.hurry.cancel();
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor.load(Ordering::SeqCst)
    }

    /// Another worker waits for the exclusive name of this one. This worker then stops as after a signal.
    pub(crate) fn set_has_successor(&self) {
        self.has_successor.store(true, Ordering::SeqCst);
        self.stopping.cancel();
    }
}

/// How the keeper learns that its work ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeeperEnd {
    pub(crate) stop: CancellationToken,
    /// The worker's future was dropped. The keeper hands back the jobs.
    pub(crate) left: CancellationToken,
}
