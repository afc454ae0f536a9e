//! The keeper: one OS thread with its own runtime and connection, which beats for every held job and sweeps.
//!
//! It is not on the user's runtime, so handlers that block every thread there cannot stop it. Nothing of the user's runs
//! on it: what it has to log is said on another thread.

pub(crate) mod beat;
pub(crate) mod count;
pub(crate) mod expiry;
pub(crate) mod hints;
#[cfg(feature = "testing")]
pub(crate) mod hooks;
pub(crate) mod log;
pub(crate) mod notes;
pub(crate) mod pass;
pub(crate) mod presence;
pub(crate) mod reconcile;
pub(crate) mod retention;
pub(crate) mod roads;
pub(crate) mod round;
pub(crate) mod sweep;
pub(crate) mod thread;
pub(crate) mod tick;
pub(crate) mod watch;
pub(crate) mod wind_up;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};

use self::log::Log;
use self::watch::TaskWatch;
use crate::clock;
use crate::error::Error;
use crate::process::held::{Flags, Held};
use crate::process::identity;
use crate::process::shared::WorkerShared;
use crate::process::task::{TaskRuntime, tell_declared};
use crate::stall::witness::WatchBreak;
use crate::store::address::Role;
use crate::store::connection::OwnConnection;
use crate::store::declare;
use crate::store::patience::RESPONSE_TIMEOUT;

/// How often retention and presence are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// How long a task waits for the connection that another one is making.
const SHARED_ATTEMPT: Duration = Duration::from_millis(50);

/// What all loops of the keeper share.
pub(crate) struct Keeper {
    pub(crate) worker: Arc<WorkerShared>,
    pub(crate) watches: Arc<[Arc<TaskWatch>]>,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) log: Log,
    newest: Mutex<Newest>,
    connecting: AsyncMutex<()>,
    /// A connection came up.
    connected: Notify,
}

/// The connection that was made last, and its number.
#[derive(Default)]
struct Newest {
    conn: Option<OwnConnection>,
    number: u64,
    /// Which primary it leads to, and the number of the first connection that did.
    generation: u64,
    first: u64,
}

impl Keeper {
    fn new(worker: Arc<WorkerShared>, watches: Arc<[Arc<TaskWatch>]>, log: Log) -> Keeper {
        let (newest, connecting, connected) = (Mutex::default(), AsyncMutex::default(), Notify::new());
        Keeper { worker, watches, facts: identity::process_facts(), log, newest, connecting, connected }
    }

    /// The number of the connection that was made last.
    fn newest_number(&self) -> u64 {
        self.newest().number
    }

    /// Makes a call for the task on the keeper's own connection, which it brings up first if need be. The answer must come
    /// within a beat period of the task.
    pub(crate) async fn call<T>(
        &self,
        watch: &TaskWatch,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let period = watch.task.beat_period();
        let (mut conn, number) =
            tokio::time::timeout(period, self.line(watch)).await.map_err(|_| Error::timed_out())??;
        let call = self.steady(number, call(&mut conn));
        let answer = tokio::time::timeout(period, call).await.unwrap_or_else(|_| Err(Error::timed_out()));
        if let Err(e) = &answer {
            self.failed(watch, number, e);
        }
        answer
    }

    /// Makes a call on the connection of this number as long as it leads to the primary.
    pub(crate) fn steady<'a, T: 'a>(
        &'a self,
        number: u64,
        call: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        let generation = {
            let newest = self.newest();
            // Any other one ends it at once.
            if number >= newest.first { newest.generation } else { newest.generation.wrapping_sub(1) }
        };
        self.worker.store.steady_since(generation, call)
    }

    /// Another server is the primary: every line leads to the one before. Nothing that was watched there counts.
    pub(crate) fn primary_changed(&self) {
        self.newest().conn = None;
        for watch in self.watches.iter() {
            watch.lost_line(|_| true, WatchBreak::PrimaryChanged);
            // Also where a call has failed for it before.
            watch.witness().broken(clock::now(), WatchBreak::PrimaryChanged);
            watch.task.beat_now.notify_one();
            watch.task.poke.notify_one();
        }
        let (worker_id, generation) = (self.worker.id.clone(), self.worker.store.generation());
        self.log.line(move || tracing::warn!(%worker_id, generation, "another server is the primary"));
    }

    /// Makes a call that no task waits for, in a time of its own. One that is late says nothing about any watch.
    pub(crate) async fn housekeeping_call<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let calls = async {
            let (mut conn, number) = match self.usable(0) {
                Some(newest) => newest,
                None => self.connect(0).await?,
            };
            let answer = self.steady(number, call(&mut conn)).await;
            if answer.as_ref().is_err_and(Error::ends_connection) {
                self.closed(number);
            }
            answer
        };
        let newest = self.newest().number;
        tokio::time::timeout(RESPONSE_TIMEOUT, calls).await.unwrap_or_else(|_| {
            // The next such call makes another one. The tasks that go over it judge for themselves.
            let mut slot = self.newest();
            if slot.number == newest {
                slot.conn = None;
            }
            drop(slot);
            Err(Error::timed_out())
        })
    }

    /// The connection over which calls for the task go, and its number.
    async fn line(&self, watch: &TaskWatch) -> Result<(OwnConnection, u64), Error> {
        let own = watch.line().clone();
        if let Some(line) = own {
            return Ok(line);
        }
        let given_up = watch.given_up();
        let line = match self.usable(given_up) {
            Some(line) => line,
            None => self.connect(given_up).await?,
        };
        *watch.line() = Some(line.clone());
        Ok(line)
    }

    /// The newest connection, if its number is above this one.
    fn usable(&self, above: u64) -> Option<(OwnConnection, u64)> {
        let newest = self.newest();
        let is_there = newest.number > above && newest.generation == self.worker.store.generation();
        newest.conn.clone().filter(|_| is_there).map(|conn| (conn, newest.number))
    }

    /// Makes a connection with a number above this one, for this task and for those that need another one later. Those that
    /// need one together share it, but for one that takes long: then each looks after itself.
    async fn connect(&self, above: u64) -> Result<(OwnConnection, u64), Error> {
        let _turn = tokio::time::timeout(SHARED_ATTEMPT, self.connecting.lock()).await;
        if let Some(line) = self.usable(above) {
            return Ok(line);
        }
        let generation = self.worker.store.generation();
        let conn = self.worker.store.dedicated(Role::Keeper, None).await?;
        // Others may have made one meanwhile: of those the first is for all.
        if let Some(line) = self.usable(above) {
            return Ok(line);
        }
        let mut newest = self.newest();
        let number = newest.number + 1;
        let first = if generation == newest.generation { newest.first } else { number };
        *newest = Newest { conn: Some(conn.clone()), number, generation, first };
        self.connected.notify_one();
        Ok((conn, newest.number))
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call for the task failed on the connection. Being late is a matter of this task alone, since it goes by its own
    /// period; a connection that the server or the system closed is over for all.
    fn failed(&self, watch: &TaskWatch, number: u64, e: &Error) {
        if e.is_timeout() {
            watch.give_up(number);
        } else if e.ends_connection() {
            self.closed(number);
        }
    }

    fn closed(&self, number: u64) {
        let mut newest = self.newest();
        if newest.number == number {
            newest.conn = None;
        }
        drop(newest);
        self.watches.iter().for_each(|watch| watch.lost_line(|own| own == number, WatchBreak::ConnectionLost));
    }

    /// A part of the keeper got no answer: the first of an outage is told.
    fn unanswered(&self, part: &'static str, task: usize, e: Error) {
        let (begins, worker_id) = (self.worker.outage.failed(part, task), self.worker.id.clone());
        self.log.line(move || {
            let what = "redis gives no answer; what is under way is repeated until it does";
            if begins {
                tracing::warn!(%worker_id, part, error = %e.chain(), "{what}");
            } else {
                tracing::debug!(%worker_id, part, error = %e.chain(), "{what}");
            }
        });
    }

    fn answered(&self, part: &'static str, task: usize) {
        if let Some(away) = self.worker.outage.answered(part, task) {
            let (away_ms, worker_id) = (away.as_millis() as u64, self.worker.id.clone());
            self.log.line(move || tracing::info!(%worker_id, away_ms, "redis answers again"));
        }
    }

    /// Redis says that somebody else decides about the job.
    pub(crate) fn lost(&self, task: &TaskRuntime, held: &Arc<Held>) {
        // A finished job is settled by now, or about to be told by the settle itself.
        if !held.flags().intersects(Flags::FINISHED) && !held.flags().intersects(Flags::LOST) {
            task.tally.lock_lost();
            let (task, job_id, fence) = (Arc::clone(&task.name), held.id.clone(), held.fence);
            self.log.line(move || {
                tracing::warn!(%task, %job_id, fence, "lost: the lock of the job is gone, another worker may hold it");
            });
        }
        held.post(Flags::LOST);
        if held.flags().intersects(Flags::NOT_BEGUN) {
            task.poke.notify_one();
        }
    }

    /// Writes the options of the task again, as [`TaskRuntime::declare_again`](crate::process::task::TaskRuntime) does.
    pub(crate) async fn declare_again(&self, watch: &TaskWatch) -> Result<(), Error> {
        let task = &watch.task;
        let worker = self.worker.id.as_str();
        let call = async |conn: &mut _| {
            self.worker.store.register(conn, &task.name).await?;
            declare::declare_again(conn, &task.keys, worker, task.stamp, &task.options).await
        };
        if self.call(watch, call).await? {
            let task = Arc::clone(&task.name);
            self.log.line(move || tell_declared(&task));
        }
        Ok(())
    }
}
