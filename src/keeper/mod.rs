//! The keeper: one OS thread with its own runtime and connection, which sends heartbeats for held jobs and sweeps.
//!
//! It does not use the user's runtime, so handlers that block every thread there cannot stop it. It runs no user code:
//! its log lines are written by another thread.

pub(crate) mod ahead;
pub(crate) mod beat;
pub(crate) mod dropped_worker;
pub(crate) mod failover;
pub(crate) mod heartbeat_batch;
pub(crate) mod hints;
#[cfg(feature = "testing")]
pub(crate) mod hooks;
pub(crate) mod housekeeping;
pub(crate) mod log;
pub(crate) mod notes;
pub(crate) mod presence;
pub(crate) mod reconcile;
#[cfg(feature = "schedules")]
mod schedule_names;
#[cfg(feature = "schedules")]
pub(crate) mod schedules;
pub(crate) mod sweep;
pub(crate) mod sweep_progress;
pub(crate) mod task_monitor;
pub(crate) mod thread;
pub(crate) mod tick;
#[cfg(feature = "schedules")]
mod timetable;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use self::log::Log;
use self::task_monitor::TaskMonitor;
use crate::backend::address::Role;
use crate::backend::call_context;
use crate::backend::connection::OwnConnection;
use crate::backend::declare;
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::clock;
use crate::error::Error;
use crate::mutex::Mutex;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::identity;
use crate::runtime::incidents::Change;
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::{TaskRuntime, log_declared_again};
use crate::stall::witness::DetectorReset;

/// How often the keeper does its housekeeping and announces the worker.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// How long a task waits for a connection that another task is making.
const SHARED_ATTEMPT: Duration = Duration::from_millis(50);

/// What all loops of the keeper share.
pub(crate) struct Keeper {
    pub(crate) worker: Arc<WorkerShared>,
    pub(crate) watches: Arc<[Arc<TaskMonitor>]>,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) log: Log,
    connections: Mutex<KeeperConnections>,
    connecting: AsyncMutex<()>,
    /// A connection was made.
    connected: Notify,
    /// The process was frozen and runs again, or another worker waits for a sign of life.
    resumed: Notify,
    /// Another worker has written into the presence of this one.
    named: Notify,
}

/// The newest connection to each primary, and how many there were.
#[derive(Default)]
struct KeeperConnections {
    newest: HashMap<Place, NumberedConnection>,
    number: u64,
    /// The primary epoch of the newest connection, and the number of the first connection of that epoch.
    primary_epoch: u64,
    first: u64,
}

/// What a connection of the keeper is for: the tasks of one primary, or, in a cluster, calls that belong to no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Primary(u64),
    NoTask,
}

/// A connection and its number.
type NumberedConnection = (OwnConnection, u64);

impl Keeper {
    fn new(worker: Arc<WorkerShared>, watches: Arc<[Arc<TaskMonitor>]>, log: Log) -> Keeper {
        Keeper {
            worker,
            watches,
            facts: identity::process_facts(),
            log,
            connections: Mutex::default(),
            connecting: AsyncMutex::default(),
            connected: Notify::new(),
            resumed: Notify::new(),
            named: Notify::new(),
        }
    }

    /// The number of the newest connection.
    fn newest_number(&self) -> u64 {
        self.connections.lock().number
    }

    fn place_of(&self, watch: &TaskMonitor) -> Place {
        Place::Primary(self.worker.store.primary_epoch_of(&watch.task.keys))
    }

    /// Makes a call for the task on the keeper's own connection, and connects first if necessary. Times out after one
    /// heartbeat period of the task.
    pub(crate) async fn call<T>(
        &self,
        watch: &TaskMonitor,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let period = watch.task.beat_period();
        let place = self.worker.store.place();
        let connection = call_context::within(period, Error::timed_out, self.connection(watch)).await;
        let (mut conn, number) = connection.map_err(|e| e.at(place))?;
        let call = self.steady(number, call(&mut conn));
        let answer = call_context::within(period, Error::timed_out, call).await;
        if let Err(e) = &answer {
            self.failed(watch, number, e);
        }
        answer.map_err(|e| e.at(place))
    }

    /// Makes a call on the connection of this number, for as long as it leads to the primary.
    pub(crate) fn steady<'a, T: 'a>(
        &'a self,
        number: u64,
        call: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        let primary_epoch = {
            let connections = self.connections.lock();
            // With another primary epoch the call ends at once.
            if number >= connections.first {
                connections.primary_epoch
            } else {
                connections.primary_epoch.wrapping_sub(1)
            }
        };
        self.worker.store.steady_since(primary_epoch, call)
    }

    /// The primary epoch of each task.
    pub(crate) fn primary_epochs(&self) -> Vec<u64> {
        self.watches.iter().map(|watch| self.worker.store.primary_epoch_of(&watch.task.keys)).collect()
    }

    /// Drops the connections of tasks whose primary epoch has changed. What was watched at the earlier primary does not
    /// count.
    pub(crate) fn primary_changed(&self, before: &[u64], now: &[u64]) {
        let changed = || self.watches.iter().zip(before.iter().zip(now)).filter(|(_, (before, now))| before != now);
        let gone: HashSet<Place> = changed().map(|(_, (before, _))| Place::Primary(*before)).collect();
        self.connections.lock().newest.retain(|place, _| !gone.contains(place));
        for (watch, _) in changed() {
            watch.lost_connection(|_| true, DetectorReset::PrimaryChanged);
            // Do this even if an earlier call has already failed for this reason.
            watch.witness.lock().broken(clock::now(), DetectorReset::PrimaryChanged);
            watch.task.beat_now.notify_one();
            watch.task.poke.notify_one();
        }
        let (worker_id, tasks) = (self.worker.id.clone(), changed().count());
        self.log.line(
            move || tracing::warn!(%worker_id, tasks, "the primary has changed; the watch for stalled jobs restarts"),
        );
    }

    /// Makes a call for no task, with a time-out of its own. A late answer affects no watch.
    pub(crate) async fn housekeeping_call<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let store = &self.worker.store;
        let place = if store.is_cluster() { Place::NoTask } else { Place::Primary(store.primary_epoch()) };
        let calls = async {
            let (mut conn, number) = match self.usable(place, 0) {
                Some(newest) => newest,
                None => self.connect(place, 0).boxed().await?,
            };
            let answer = self.steady(number, call(&mut conn)).await;
            if answer.as_ref().is_err_and(Error::ends_connection) {
                self.closed(number);
            }
            answer
        };
        let newest = self.newest_number();
        let answer = call_context::within(RESPONSE_TIMEOUT, Error::timed_out, async { Ok(calls.await) }).await;
        answer
            .unwrap_or_else(|late| {
                // The next such call makes a new connection. Tasks that use this one decide for themselves.
                let mut connections = self.connections.lock();
                if connections.newest.get(&place).is_some_and(|(_, number)| *number <= newest) {
                    connections.newest.remove(&place);
                }
                drop(connections);
                Err(late)
            })
            .map_err(|e| e.at(store.place()))
    }

    /// The connection for calls of the task, and its number.
    async fn connection(&self, watch: &TaskMonitor) -> Result<(OwnConnection, u64), Error> {
        let own = watch.connection.lock().clone();
        if let Some(connection) = own {
            return Ok(connection);
        }
        let (given_up, place) = (watch.given_up(), self.place_of(watch));
        let connection = match self.usable(place, given_up) {
            Some(connection) => connection,
            None => self.connect(place, given_up).boxed().await?,
        };
        *watch.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// The newest connection, if its number is above this one.
    fn usable(&self, place: Place, above: u64) -> Option<NumberedConnection> {
        let connections = self.connections.lock();
        let is_there = connections.primary_epoch == self.worker.store.primary_epoch();
        connections.newest.get(&place).filter(|(_, number)| is_there && *number > above).cloned()
    }

    /// Makes a connection with a number above this one, for this task and for later ones. Tasks that need one at the
    /// same time share it; if it takes long, each makes its own.
    async fn connect(&self, place: Place, above: u64) -> Result<NumberedConnection, Error> {
        let _turn = tokio::time::timeout(SHARED_ATTEMPT, self.connecting.lock()).await;
        if let Some(connection) = self.usable(place, above) {
            return Ok(connection);
        }
        let primary_epoch = self.worker.store.primary_epoch();
        let conn = self.worker.store.dedicated(Role::Keeper, None).await?;
        // Another task may have connected meanwhile: all use the first connection.
        if let Some(connection) = self.usable(place, above) {
            return Ok(connection);
        }
        let mut connections = self.connections.lock();
        connections.number += 1;
        let connection = (conn, connections.number);
        if primary_epoch != connections.primary_epoch {
            (connections.primary_epoch, connections.first) = (primary_epoch, connections.number);
            connections.newest.clear();
        }
        connections.newest.insert(place, connection.clone());
        self.connected.notify_one();
        Ok(connection)
    }

    /// Handles a failed call of the task. A late answer concerns only this task, since each has its own period. A
    /// connection closed by the server or the system is lost for all tasks.
    fn failed(&self, watch: &TaskMonitor, number: u64, e: &Error) {
        if e.is_timeout() {
            watch.give_up(number);
        } else if e.ends_connection() {
            self.closed(number);
        }
    }

    fn closed(&self, number: u64) {
        self.connections.lock().newest.retain(|_, (_, own)| *own != number);
        self.watches.iter().for_each(|watch| watch.lost_connection(|own| own == number, DetectorReset::ConnectionLost));
    }

    /// Records that a part of the keeper got no answer, or was refused.
    fn failed_at(&self, part: &'static str, of: (usize, &str), e: &Error) {
        self.log_changes(self.worker.incidents.failed(part, of, e, e.is_outage()));
        let (worker_id, error) = (self.worker.id.clone(), e.chain().to_string());
        self.log.line(move || tracing::debug!(%worker_id, part, error, "a call failed; will retry"));
    }

    fn answered(&self, part: &'static str, of: (usize, &str)) {
        self.log_changes(self.worker.incidents.answered(part, of));
    }

    fn log_changes(&self, changes: Vec<Change>) {
        for change in changes {
            let worker_id = self.worker.id.clone();
            self.log.line(move || change.log(&worker_id));
        }
    }

    /// Redis reports that this worker no longer holds the job.
    pub(crate) fn lost(&self, task: &TaskRuntime, held: &Arc<HeldJob>) {
        // A finished job is settled by now, or the settle call reports the loss.
        if !held.flags().intersects(Flags::FINISHED) && !held.flags().intersects(Flags::LOST) {
            task.tally().locks_lost.add(1);
            let (task, job_id, fence) = (Arc::clone(&task.name), held.id.clone(), held.fence);
            self.log.line(move || {
                tracing::warn!(%task, %job_id, fence, "the lock of a job is lost; another worker may hold the job");
            });
        }
        held.post(Flags::LOST);
        if held.flags().intersects(Flags::NOT_BEGUN) {
            task.poke.notify_one();
        }
    }

    /// Writes the options of the task again, as [`TaskRuntime::declare_again`](crate::runtime::task::TaskRuntime) does.
    pub(crate) fn declare_again<'a>(&'a self, watch: &'a TaskMonitor) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let task = &watch.task;
            let worker = self.worker.id.as_str();
            let declare =
                async |conn: &mut _| declare::declare_again(conn, &task.keys, worker, task.stamp, &task.options).await;
            if self.call(watch, declare).await? {
                let task = Arc::clone(&task.name);
                self.log.line(move || log_declared_again(&task));
            }
            // The list of tasks is only for people, and its node may be unreachable.
            let register = async |conn: &mut _| self.worker.store.register(conn, &task.name).await;
            match self.housekeeping_call(register).await {
                Err(e) if e.is_outage() => Ok(()),
                registered => registered,
            }
        })
    }
}
