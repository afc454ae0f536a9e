//! What driver, keeper and runners of one task share.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::ahead_watch::AheadWatch;
use super::bells::Bells;
use super::handler::{Handler, Hook};
use super::held_jobs::HeldJobs;
use super::outbox::Outbox;
use super::permits::{Permits, TaskPermits};
use super::rights::Rights;
use super::shared::WorkerShared;
use super::state::Need;
use super::stats::TaskTally;
use super::unacked_claims::UnackedClaims;
use crate::backend::declare;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::server::check_rights;
use crate::backend::settle::PlainFirst;
use crate::backend::shared_connection::SharedConnection;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::error::job_error::ErrorMap;
use crate::log_buckets::LogBuckets;
use crate::options::resolved::Resolved;
use crate::stall::cadence;

#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) options: Arc<Resolved>,
    pub(crate) handler: Handler,
    /// The hook: runs before a job ends.
    pub(crate) hook: Option<Hook>,
    /// The user's mappings of errors.
    pub(crate) errors: Arc<[ErrorMap]>,
    pub(crate) needs: Arc<[Need]>,
    /// The schedules that the code declares.
    #[cfg(feature = "schedules")]
    pub(crate) schedules: Arc<[super::schedules::DeclaredSchedule]>,
    /// For a task with partitions: the slots and figures that they share.
    pub(crate) shared: Option<Arc<Partitioned>>,
}

/// What the partitions of a task share in a worker.
pub(crate) struct Partitioned {
    pub(crate) slots: Permits,
    pub(crate) tally: TaskTally,
}

impl Definition {
    /// One definition for each table of the task.
    pub(crate) fn of_tables(self, tables: &[Arc<TaskKeys>]) -> Vec<Definition> {
        if let [only] = tables {
            // What was known when the worker was built may be outdated.
            return vec![Definition { keys: Arc::clone(only), ..self }];
        }
        let slots = Permits::new(Some(self.options.concurrency));
        let shared = Arc::new(Partitioned { slots, tally: TaskTally::default() });
        let options = Arc::new(Resolved::clone(&self.options).of_partition(tables.len() as u32));
        let of = |keys: &Arc<TaskKeys>| Definition {
            keys: Arc::clone(keys),
            options: Arc::clone(&options),
            shared: Some(Arc::clone(&shared)),
            ..self.clone()
        };
        tables.iter().map(of).collect()
    }
}

pub(crate) struct TaskRuntime {
    pub(crate) index: usize,
    definition: Definition,
    pub(crate) held: HeldJobs,
    pub(crate) outbox: Outbox,
    /// The driver and the runs that are not dropped yet.
    pub(crate) alive: TaskTracker,
    /// Signals to the driver that there is something to do.
    pub(crate) poke: Notify,
    /// Signals to the keeper to send heartbeats for all jobs at once.
    pub(crate) beat_now: Notify,
    /// Signals to the keeper about this task.
    pub(crate) bells: Arc<Bells>,
    /// When this worker declared the options of the task, ms by the server's clock.
    pub(crate) stamp: u64,
    /// When the last answered heartbeat was sent; 0 before the first.
    last_beat: AtomicU64,
    /// How long its answers took, ms; 0 if it named no job.
    beat_took: AtomicU64,
    /// How many jobs the worker may hold until the next heartbeat is answered.
    most_held: AtomicUsize,
    pub(crate) claims: UnackedClaims,
    /// What the driver holds ahead.
    pub(crate) ahead_watch: AheadWatch,
    /// When a claim was last sent or repeated, ms; before the first, the start.
    last_claim: AtomicU64,
    /// Since when heartbeats have been fresh, ms.
    fresh_since: AtomicU64,
    pub(crate) counted: Counted,
    pub(crate) run_times: RunTimes,
    /// What this worker counts, if the task has no partitions.
    own_tally: TaskTally,
    /// The connection for outcomes that wait for replicas.
    pub(crate) replicated: OnceLock<SharedConnection>,
    /// Whether the log says that a handler blocked its thread.
    pub(crate) blocking_logged: AtomicBool,
    /// Whether the log says that a longer stall interval than its own is in force.
    pub(crate) longer_interval_logged: AtomicBool,
    /// Whether fewer replicas than requested had the last outcomes.
    lacks_copies: AtomicBool,
    pub(crate) plain_first: PlainFirst,
    pub(crate) rights: Rights,
}

/// How long the runs waited and took since that was last recorded in the time series of the task.
#[derive(Debug, Default)]
pub(crate) struct RunTimes {
    pub(crate) waited: LogBuckets,
    pub(crate) ran: LogBuckets,
}

/// The last count of a task's jobs, taken every few seconds for the health of the worker.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) waiting: AtomicU64,
    pub(crate) is_paused: AtomicBool,
}

impl Deref for TaskRuntime {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        &self.definition
    }
}

impl TaskRuntime {
    /// How log lines and incidents name it. The number distinguishes its partitions.
    pub(crate) fn of(&self) -> (usize, &str) {
        (self.index, &self.name)
    }

    /// The task at this index of its worker, with its options declared at `stamp`.
    pub(crate) fn new(index: usize, definition: Definition, stamp: u64, store: &Store) -> TaskRuntime {
        // The start checked only the primary of the first partition.
        let primary_epoch =
            if definition.keys.part() == 0 { store.primary_epoch_of(&definition.keys) } else { u64::MAX };
        TaskRuntime {
            rights: Rights::at(primary_epoch),
            index,
            stamp,
            definition,
            held: HeldJobs::default(),
            outbox: Outbox::default(),
            alive: TaskTracker::new(),
            poke: Notify::new(),
            beat_now: Notify::new(),
            bells: Arc::default(),
            last_beat: AtomicU64::new(0),
            beat_took: AtomicU64::new(0),
            most_held: AtomicUsize::new(usize::MAX),
            claims: UnackedClaims::default(),
            ahead_watch: AheadWatch::default(),
            last_claim: AtomicU64::new(clock::now().as_millis()),
            fresh_since: AtomicU64::new(clock::now().as_millis()),
            counted: Counted::default(),
            run_times: RunTimes::default(),
            own_tally: TaskTally::default(),
            replicated: OnceLock::new(),
            blocking_logged: AtomicBool::new(false),
            longer_interval_logged: AtomicBool::new(false),
            lacks_copies: AtomicBool::new(false),
            plain_first: PlainFirst::default(),
        }
    }

    /// What this worker counts, over all partitions.
    pub(crate) fn tally(&self) -> &TaskTally {
        self.shared.as_ref().map_or(&self.own_tally, |shared| &shared.tally)
    }

    pub(crate) fn slots<'a>(&'a self, worker: &'a WorkerShared) -> TaskPermits<'a> {
        TaskPermits { worker: &worker.slots, task: self.shared.as_deref().map(|shared| &shared.slots) }
    }

    /// Checks the rights before a call that would leave jobs in no list or set if it were refused midway.
    ///
    /// # Errors
    /// `Unsupported` with what is missing, and those of every call.
    pub(crate) async fn may_write(&self, store: &Store) -> Result<(), Error> {
        let ask = async || store.call(async |conn| check_rights(conn, &self.keys).await).await;
        self.rights.make_sure(store.primary_epoch_of(&self.keys), ask).await
    }

    /// Whether it is the first partition of its task, or the only one.
    pub(crate) fn is_first(&self) -> bool {
        self.keys.part() == 0
    }

    /// Records how many replicas have the reported outcomes.
    pub(crate) fn copied(&self, acked: u32, replicas: u32, outcomes: usize) {
        let lacks = acked < replicas;
        if lacks {
            self.tally().not_replicated.add(outcomes);
        }
        let did_lack = self.lacks_copies.swap(lacks, Ordering::Relaxed);
        let task = &self.name;
        if lacks && !did_lack {
            tracing::warn!(%task, acked, replicas, "outcomes recorded, but acknowledged by fewer replicas than requested");
        }
        if did_lack && !lacks {
            tracing::info!(%task, replicas, "outcomes are again acknowledged by as many replicas as requested");
        }
    }

    pub(crate) fn slots_held(&self) -> usize {
        // Unless jobs are kept ahead, each held job has one, also while its payload is read.
        if self.options.prefetch.kept() == 0 { self.held.len() } else { self.held.begun() }
    }

    pub(crate) fn beat_period(&self) -> Duration {
        cadence::beat_period(self.options.interval)
    }

    pub(crate) fn last_beat(&self) -> Moment {
        Moment::from_millis(self.last_beat.load(Ordering::SeqCst))
    }

    /// Records the answer to a heartbeat that named this many jobs.
    pub(crate) fn beat_answered(&self, sent: Moment, named: usize, took: Duration) {
        if !self.beats_are_fresh() {
            self.fresh_since.store(clock::now().as_millis(), Ordering::SeqCst);
        }
        self.tally().beats.add(took);
        self.beat_took.store(took.as_millis() as u64, Ordering::SeqCst);
        self.most_held.store(cadence::most_held(self.options.interval, named, took), Ordering::SeqCst);
        self.last_beat.fetch_max(sent.as_millis().max(1), Ordering::SeqCst);
    }

    /// How long the answers to the last heartbeat took; zero if it named no job.
    pub(crate) fn beat_took(&self) -> Duration {
        Duration::from_millis(self.beat_took.load(Ordering::SeqCst))
    }

    pub(crate) fn claims_now(&self) {
        self.last_claim.store(clock::now().as_millis(), Ordering::SeqCst);
    }

    /// Since when no claim was sent although heartbeats were answered.
    pub(crate) fn silent_since(&self) -> Moment {
        let (claim, fresh) = (self.last_claim.load(Ordering::SeqCst), self.fresh_since.load(Ordering::SeqCst));
        Moment::from_millis(claim.max(fresh))
    }

    /// Whether the last heartbeat took over half a period.
    pub(crate) fn beats_are_slow(&self) -> bool {
        self.beat_took() > cadence::slow_beat(self.options.interval)
    }

    /// Whether the last heartbeat took longer than its period, so that the worker should get no more jobs.
    pub(crate) fn beats_are_overdue(&self) -> bool {
        self.beat_took() > self.beat_period()
    }

    /// How many more jobs the heartbeats can carry, if claims under way bring `claiming` jobs.
    pub(crate) fn can_carry(&self, claiming: usize) -> usize {
        match self.most_held.load(Ordering::SeqCst) {
            usize::MAX => usize::MAX,
            most => most.saturating_sub(self.held.len() + claiming),
        }
    }

    /// Whether jobs may be claimed. A keeper that cannot send heartbeats would lose new jobs, and one that cannot keep up
    /// with its present jobs should get no more.
    pub(crate) fn beats_are_fresh(&self) -> bool {
        let last = self.last_beat();
        last.as_millis() > 0
            && clock::now().since(last) < cadence::stale_beat(self.options.interval)
            && !self.beats_are_overdue()
    }

    /// Writes the options of the task again after the server lost them, unless a worker that started later has declared its own.
    pub(crate) async fn declare_again(&self, store: &Store, worker: &str) -> Result<(), Error> {
        let declare =
            async |conn: &mut _| declare::declare_again(conn, &self.keys, worker, self.stamp, &self.options).await;
        if store.call(declare).await? {
            log_declared_again(&self.name);
        }
        match store.call(async |conn| store.register(conn, &self.name).await).await {
            // The list of tasks is on its own node, and only for people.
            Err(e) if store.is_cluster() && e.is_outage() => Ok(()),
            registered => registered,
        }
    }
}

/// Logs that the options of a task had to be declared again.
pub(crate) fn log_declared_again(task: &str) {
    tracing::warn!(%task, "the server had lost the options of the task; declaring them again");
}
