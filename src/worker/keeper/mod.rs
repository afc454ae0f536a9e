//! The keeper: one OS thread with its own runtime and connection, which beats for every held job and sweeps.
//!
//! It is not on the user's runtime, so handlers that block every thread there cannot stop it. Nothing of the user's runs
//! on it: what it has to log is said on another thread.

mod beat;
mod hints;
mod log;
mod tick;
mod wind_up;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};

use self::log::Log;
use super::clock;
use super::{KeeperEnd, TaskRuntime, WorkerShared};
use crate::error::Error;
use crate::maintenance;
use crate::stall;
use crate::stall::sweep::Pass;
use crate::stall::witness::Witness;
use crate::store::jobs::{self, Declared};
use crate::store::{OwnConnection, RESPONSE_TIMEOUT, Role};

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
}

/// The connection that was made last, and its number.
#[derive(Default)]
struct Newest {
    conn: Option<OwnConnection>,
    number: u64,
}

/// The keeper's view of one task.
pub(crate) struct TaskWatch {
    pub(crate) task: Arc<TaskRuntime>,
    witness: Mutex<Witness>,
    /// Rings when the witness saw something new.
    pub(crate) seen: Notify,
    pass: Mutex<Pass>,
    /// The connection over which the calls of this task go, and its number. It stays with it for as long as it answers this
    /// task: another one may lead to another server, and then the watch begins anew.
    line: Mutex<Option<(OwnConnection, u64)>>,
    /// Connections up to this number gave this task no answer in time. Other tasks, which have other times, may use them.
    given_up: AtomicU64,
}

impl TaskWatch {
    pub(crate) fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the sweep of the task has come.
    pub(crate) fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. It ends when it is told to, and drops `alive` however it ends.
pub(super) fn start(
    worker: Arc<WorkerShared>,
    tasks: &[Arc<TaskRuntime>],
    canary: Arc<AtomicU64>,
    end: KeeperEnd,
    alive: tokio::sync::oneshot::Sender<()>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let now = clock::now();
    let watches = tasks
        .iter()
        .map(|task| {
            Arc::new(TaskWatch {
                task: Arc::clone(task),
                witness: Mutex::new(Witness::new(task.beat_period(), now)),
                seen: Notify::new(),
                pass: Mutex::default(),
                line: Mutex::default(),
                given_up: AtomicU64::new(0),
            })
        })
        .collect();
    let facts = super::identity::process_facts();
    let keeper = Arc::new(Keeper {
        worker,
        watches,
        facts,
        log: Log::start()?,
        newest: Mutex::default(),
        connecting: AsyncMutex::default(),
    });
    std::thread::Builder::new().name("heartline-keeper".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async {
            let mut loops = tokio::task::JoinSet::new();
            loops.spawn(tick::run(Arc::clone(&keeper), canary));
            loops.spawn(hints::run(Arc::clone(&keeper)));
            loops.spawn(presence(Arc::clone(&keeper)));
            loops.spawn(retention(Arc::clone(&keeper)));
            for watch in keeper.watches.iter() {
                loops.spawn(beat::run(Arc::clone(&keeper), Arc::clone(watch)));
                loops.spawn(stall::sweep::run(Arc::clone(&keeper), Arc::clone(watch)));
            }
            let wound_up = tokio::select! {
                () = end.stop.cancelled() => None,
                // The loops go on beating meanwhile.
                told = wind_up::run(&keeper, &end) => Some(told),
                // None of the loops ends by itself: one that does has panicked.
                ended = loops.join_next() => {
                    keeper.log.line(move || tracing::error!(?ended, "the keeper ended; the worker stops"));
                    None
                }
            };
            drop(loops);
            if let Some(told) = wound_up {
                wind_up::end(&keeper, told).await;
            }
        });
        // A look-up of a name may be under way for long, on a thread of its own.
        runtime.shutdown_background();
    })
}

impl Keeper {
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
        let answer = tokio::time::timeout(period, call(&mut conn)).await.unwrap_or_else(|_| Err(Error::timed_out()));
        if let Err(e) = &answer {
            self.failed(watch, number, e);
        }
        answer
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
            let answer = call(&mut conn).await;
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
        newest.conn.clone().filter(|_| newest.number > above).map(|conn| (conn, newest.number))
    }

    /// Makes a connection with a number above this one, for this task and for those that need another one later. Those that
    /// need one together share it, but for one that takes long: then each looks after itself.
    async fn connect(&self, above: u64) -> Result<(OwnConnection, u64), Error> {
        let _turn = tokio::time::timeout(SHARED_ATTEMPT, self.connecting.lock()).await;
        if let Some(line) = self.usable(above) {
            return Ok(line);
        }
        let conn = self.worker.store.dedicated(Role::Keeper, None).await?;
        // Others may have made one meanwhile: of those the first is for all.
        if let Some(line) = self.usable(above) {
            return Ok(line);
        }
        let mut newest = self.newest();
        *newest = Newest { conn: Some(conn.clone()), number: newest.number + 1 };
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
        self.watches.iter().for_each(|watch| watch.lost_line(|own| own == number));
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

    /// Writes the options of the task again, unless a worker that started later has: the server has lost them.
    pub(crate) async fn declare_again(&self, watch: &TaskWatch) -> Result<(), Error> {
        let task = &watch.task;
        let declared = async |conn: &mut _| jobs::declare(conn, &task.keys, Some(task.stamp), &task.options).await;
        if let Declared::Ours(..) = self.call(watch, declared).await? {
            let task = Arc::clone(&task.name);
            self.log.line(
                move || tracing::warn!(%task, "the server had lost the options of the task; they are declared again"),
            );
        }
        Ok(())
    }
}

impl TaskWatch {
    fn given_up(&self) -> u64 {
        self.given_up.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn give_up(&self, number: u64) {
        self.given_up.fetch_max(number, std::sync::atomic::Ordering::SeqCst);
        self.lost_line(|own| own <= number);
        self.witness().broken(clock::now());
    }

    fn line(&self) -> MutexGuard<'_, Option<(OwnConnection, u64)>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the connection if its number is one of these; the watch begins anew over another.
    fn lost_line(&self, which: impl Fn(u64) -> bool) {
        if self.line().take_if(|(_, number)| which(*number)).is_some() {
            self.witness().broken(clock::now());
        }
    }
}

/// Tells that the worker is there, whatever else is to be done.
async fn presence(keeper: Arc<Keeper>) {
    let mut unseen = HashMap::new();
    loop {
        match maintenance::presence::run_once(&keeper, &mut unseen).await {
            Ok(_) => keeper.answered("presence", 0),
            Err(e) if e.is_outage() => keeper.unanswered("presence", 0, e),
            Err(e) => keeper.log.line(move || tracing::warn!(error = %e.chain(), "presence could not be told")),
        }
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Removes terminal jobs that are past what the tasks keep.
async fn retention(keeper: Arc<Keeper>) {
    loop {
        for watch in keeper.watches.iter() {
            let task = Arc::clone(&watch.task.name);
            match maintenance::retention::run_once(&keeper, watch).await {
                Ok(removed) => {
                    keeper.answered("retention", watch.task.index);
                    keeper.log.line(move || tracing::trace!(%task, removed, "terminal jobs trimmed"));
                }
                Err(e) if e.is_outage() => keeper.unanswered("retention", watch.task.index, e),
                Err(e) => keeper.log.line(move || {
                    tracing::warn!(%task, error = %e.chain(), "terminal jobs could not be trimmed");
                }),
            }
        }
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}
