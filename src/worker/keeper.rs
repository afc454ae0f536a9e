//! The keeper: one OS thread with its own runtime and connection, which beats for every held job and sweeps.
//!
//! It is not on the user's runtime, so handlers that block every thread there cannot stop it. Each dropped connection
//! is seen and answered by a reconnect, and by a beat before anything else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::StreamExt;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::sync::CancellationToken;

use super::clock::{self, Moment};
use super::held::{Flags, Held};
use super::{TaskRuntime, WorkerShared};
use crate::error::Error;
use crate::maintenance;
use crate::stall;
use crate::stall::witness::Witness;
use crate::store::jobs;
use crate::store::locks::{self, BEAT_BATCH, Beaten, HeldJob};
use crate::store::{OwnConnection, RESPONSE_TIMEOUT};

/// How often retention and presence are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// What all loops of the keeper share.
pub(crate) struct Keeper {
    pub(crate) worker: Arc<WorkerShared>,
    pub(crate) watches: Arc<[Arc<TaskWatch>]>,
    pub(crate) facts: Vec<(String, String)>,
    conn: AsyncMutex<Option<OwnConnection>>,
}

/// The keeper's view of one task.
pub(crate) struct TaskWatch {
    pub(crate) task: Arc<TaskRuntime>,
    witness: Mutex<Witness>,
    /// Rings when the witness saw something new.
    pub(crate) seen: Notify,
}

impl TaskWatch {
    pub(crate) fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. It ends when `stop` fires, and drops `alive` however it ends.
pub(super) fn start(
    worker: Arc<WorkerShared>,
    tasks: &[Arc<TaskRuntime>],
    canary: Arc<AtomicU64>,
    stop: CancellationToken,
    alive: tokio::sync::oneshot::Sender<()>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let now = clock::now();
    let watches = tasks
        .iter()
        .map(|task| {
            let witness = Mutex::new(Witness::new(task.beat_period(), now));
            Arc::new(TaskWatch { task: Arc::clone(task), witness, seen: Notify::new() })
        })
        .collect();
    let facts = super::identity::process_facts();
    let keeper = Arc::new(Keeper { worker, watches, facts, conn: AsyncMutex::new(None) });
    std::thread::Builder::new().name("heartline-keeper".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async {
            let mut loops = tokio::task::JoinSet::new();
            loops.spawn(tick(Arc::clone(&keeper), canary));
            loops.spawn(hints(Arc::clone(&keeper)));
            loops.spawn(housekeeping(Arc::clone(&keeper)));
            for watch in keeper.watches.iter() {
                loops.spawn(beats(Arc::clone(&keeper), Arc::clone(watch)));
                loops.spawn(stall::sweep::run(Arc::clone(&keeper), Arc::clone(watch)));
            }
            tokio::select! {
                () = stop.cancelled() => {}
                // None of the loops ends by itself: one that does has panicked.
                ended = loops.join_next() => {
                    tracing::error!(?ended, "the keeper ended; the worker stops");
                }
            }
        });
    })
}

/// Which connection a beat went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Own,
    Shared,
}

impl Keeper {
    /// Makes a call on the keeper's own connection, which it brings up first if need be. The answer must come within
    /// a beat period of the task. A failed connection is dropped, and breaks the watch of every witness.
    pub(crate) async fn call<T>(
        &self,
        watch: &TaskWatch,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let period = watch.task.beat_period();
        let mut conn = tokio::time::timeout(period, self.connection()).await.map_err(|_| Error::timed_out())??;
        let answer = match tokio::time::timeout(period, call(&mut conn)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::timed_out()),
        };
        if answer.as_ref().is_err_and(|e| e.is_connection() || e.is_demoted()) {
            *self.conn.lock().await = None;
            let now = clock::now();
            self.watches.iter().for_each(|watch| watch.witness().broken(now));
        }
        answer
    }

    async fn connection(&self) -> Result<OwnConnection, Error> {
        let mut slot = self.conn.lock().await;
        if let Some(conn) = &*slot {
            return Ok(conn.clone());
        }
        let conn = self.worker.store.dedicated(None).await?;
        *slot = Some(conn.clone());
        Ok(conn)
    }

    /// Beats once for every held job of the task. What cannot go over our own connection goes over the driver's, so
    /// that the jobs stay ours; only a beat over our own counts for the witness.
    async fn beat(&self, watch: &TaskWatch, due: Moment) -> Result<Via, Error> {
        let task = &watch.task;
        let roll = Roll::call(task);
        let sent = clock::now();
        let own = self.call(watch, async |conn| beat_calls(conn, task, &self.worker, &roll).await).await;
        let beaten = match own {
            Ok(answers) => Ok((answers, Via::Own)),
            Err(e) if e.is_connection() || e.is_demoted() => {
                let shared = self.beat_over_shared(task, &roll).await;
                shared.map(|answers| (answers, Via::Shared)).map_err(|_| e)
            }
            Err(e) => Err(e),
        };
        let extend = &roll.extend;
        let ((answers, strays), via) = beaten.inspect_err(|_| extend.iter().for_each(|held| held.return_beat()))?;
        let now = clock::now();
        let lost: Vec<u64> = answers.iter().flat_map(|answer| &answer.lost).copied().collect();
        for Strays { line, number, fences } in strays {
            if !fences.iter().any(|fence| lost.contains(fence)) {
                task.claims.beaten(line, number, sent);
            }
        }
        for held in extend {
            if !lost.contains(&held.fence) {
                held.extended(sent);
            }
        }
        for fence in lost {
            if let Some(held) = task.held.get(fence) {
                // A finished job is settled by now, or about to be told by the settle itself.
                if !held.flags().intersects(Flags::FINISHED) && !held.flags().intersects(Flags::LOST) {
                    tracing::warn!(task = %task.name, job_id = %held.id, fence, "lost: the lock of the job is gone, another worker may hold it");
                }
                held.set(Flags::LOST);
            }
        }
        for fence in answers.iter().flat_map(|answer| &answer.cancelled) {
            if let Some(held) = task.held.get(*fence) {
                held.set(Flags::CANCELLED);
            }
        }
        if let Some(last) = answers.last().filter(|_| via == Via::Own) {
            watch.witness().beat_answered(due, now, last.epoch, last.interval);
            watch.seen.notify_one();
        }
        let was_fresh = task.beats_are_fresh();
        task.beat_answered(sent);
        if !was_fresh {
            task.poke.notify_one();
        }
        Ok(via)
    }

    async fn beat_over_shared(&self, task: &TaskRuntime, roll: &Roll) -> Result<(Vec<Beaten>, Vec<Strays>), Error> {
        let period = task.beat_period();
        let calls = async |conn: &mut _| beat_calls(conn, task, &self.worker, roll).await;
        let answers = self.worker.store.shared(RESPONSE_TIMEOUT, calls);
        tokio::time::timeout(period, answers).await.map_err(|_| Error::timed_out())?
    }
}

/// What a beat is to name.
struct Roll {
    extend: Vec<Arc<Held>>,
    /// Manual: jobs whose handlers were silent.
    asked: Vec<Arc<Held>>,
    /// Claims whose answer was not taken in yet. What Redis gave out for them is ours too.
    unanswered: Vec<(usize, u64)>,
}

/// What a claim that was not taken in yet was given.
struct Strays {
    line: usize,
    number: u64,
    fences: Vec<u64>,
}

impl Roll {
    fn call(task: &TaskRuntime) -> Roll {
        // Asked first: the jobs of a claim that is answered by now are in the table.
        let unanswered = task.claims.older_than(task.beat_period() / 2);
        let (extend, asked) = task.held.all().into_iter().partition(|held| held.take_beat());
        Roll { extend, asked, unanswered }
    }
}

/// Names every job that is ours, in calls of a bounded size; one call at least, which tells the epoch.
async fn beat_calls(
    conn: &mut impl crate::store::Connection,
    task: &TaskRuntime,
    worker: &WorkerShared,
    roll: &Roll,
) -> Result<(Vec<Beaten>, Vec<Strays>), Error> {
    let named = |jobs: &[Arc<Held>]| -> Vec<HeldJob> {
        jobs.iter().map(|held| HeldJob { id: held.id.clone(), fence: held.fence }).collect()
    };
    let (mut extend, asked) = (named(&roll.extend), named(&roll.asked));
    let mut strays = Vec::new();
    for &(line, number) in &roll.unanswered {
        let claimed = match jobs::claimed_by(conn, &task.keys, worker.id.as_str(), (line, number)).await {
            Ok(claimed) => claimed,
            Err(e) if e.is_connection() || e.is_demoted() => return Err(e),
            // Settle tells of it. The held jobs must be beaten for all the same.
            Err(_) => continue,
        };
        if !claimed.is_empty() {
            strays.push(Strays { line, number, fences: claimed.iter().map(|(_, fence)| *fence).collect() });
        }
        extend.extend(claimed.into_iter().map(|(id, fence)| HeldJob { id, fence }));
    }
    let mut batches: Vec<(&[HeldJob], &[HeldJob])> = extend.chunks(BEAT_BATCH).map(|chunk| (chunk, &[][..])).collect();
    batches.extend(asked.chunks(BEAT_BATCH).map(|chunk| (&[][..], chunk)));
    if batches.is_empty() {
        batches.push((&[], &[]));
    }
    let mut answers = Vec::with_capacity(batches.len());
    for (extend, asked) in batches {
        let ask = task.options.interval;
        answers.push(locks::extend_locks(conn, &task.keys, worker.id.as_str(), ask, extend, asked).await?);
    }
    Ok((answers, strays))
}

/// Beats for a task: every period, at once when asked to, and again soon after a failure.
async fn beats(keeper: Arc<Keeper>, watch: Arc<TaskWatch>) {
    let period = watch.task.beat_period();
    let retries = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(watch.task.options.interval / 6)
        .without_max_times();
    let mut pauses = retries.build();
    let mut due = clock::now();
    loop {
        let beaten = keeper.beat(&watch, due).await;
        let now = clock::now();
        if let Ok(Via::Own) = beaten {
            pauses = retries.build();
            due = due.after(period).max(now);
        } else {
            // What did not come back over our own connection is no watch; that connection is tried again soon.
            watch.witness().broken(now);
            let pause = pauses.next().unwrap_or(period);
            due = now.after(pause);
            match beaten {
                Err(e) => {
                    tracing::warn!(task = %watch.task.name, error = %e.chain(), ?pause, "a beat was not answered")
                }
                Ok(_) => tracing::debug!(task = %watch.task.name, ?pause, "beaten over the shared connection"),
            }
        }
        watch.witness().next_beat_at(due);
        tokio::select! {
            () = tokio::time::sleep(due.since(clock::now())) => {}
            () = watch.task.beat_now.notified() => due = clock::now(),
        }
    }
}

/// Looks at the deadlines, and at whether the user's runtime still runs.
async fn tick(keeper: Arc<Keeper>, canary: Arc<AtomicU64>) {
    let shortest = keeper.watches.iter().map(|watch| watch.task.options.interval).min().unwrap_or(HOUSEKEEPING);
    let pause = (shortest / 40).clamp(Duration::from_millis(10), Duration::from_millis(250));
    let alarm = (shortest / 3).max(Duration::from_millis(300));
    let (mut told, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut last_tick = clock::now();
    let mut resumed = last_tick;
    loop {
        let now = clock::now();
        let stood_still = now.since(last_tick);
        if stood_still > alarm {
            // No handler's fault: this thread runs nothing of the user's.
            let ms = stood_still.as_millis() as u64;
            tracing::warn!(
                stood_still_ms = ms,
                "the process stood still: stopped, on a paused VM, or without CPU time"
            );
            resumed = now;
        }
        for watch in keeper.watches.iter() {
            let answered = now.since(watch.task.last_beat()) < watch.task.options.interval / 10 * 9;
            watch.task.held.for_each(|held| held.tick(last_tick, now, answered));
        }
        last_tick = now;
        keeper.worker.last_tick.store(now.as_millis(), Ordering::SeqCst);
        let silent = now.since(Moment::from_millis(canary.load(Ordering::Relaxed)).max(resumed));
        if silent > alarm {
            longest = longest.max(silent);
            // Told when it is noticed, and again each time that it has grown by half.
            if silent > told + told / 2 {
                tracing::warn!(
                    blocked_ms = silent.as_millis() as u64,
                    "handlers block every thread of the runtime; use spawn_blocking for work that does not yield"
                );
                told = silent;
            }
        } else if !longest.is_zero() {
            tracing::warn!(blocked_ms = longest.as_millis() as u64, "the runtime runs again");
            (told, longest) = (Duration::ZERO, Duration::ZERO);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Hears of cancels at once. What it misses comes with the next beat.
async fn hints(keeper: Arc<Keeper>) {
    let retries = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times();
    let mut pauses = retries.build();
    loop {
        match listen(&keeper).await {
            Ok(()) => pauses = retries.build(),
            Err(e) => tracing::debug!(error = %e.chain(), "the connection for cancel hints dropped"),
        }
        tokio::time::sleep(pauses.next().unwrap_or(HOUSEKEEPING)).await;
    }
}

async fn listen(keeper: &Keeper) -> Result<(), Error> {
    let tasks: Vec<_> = keeper.watches.iter().map(|watch| &*watch.task.keys).collect();
    let mut hints = keeper.worker.store.cancel_hints(&tasks).await?;
    // A hint may have gone by while nobody listened.
    keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
    while let Some((channel, id)) = hints.next().await {
        for watch in keeper.watches.iter() {
            if watch.task.keys.cancel_channel() == channel && watch.task.held.holds(&id) {
                watch.task.beat_now.notify_one();
            }
        }
    }
    Ok(())
}

/// Retention and presence.
async fn housekeeping(keeper: Arc<Keeper>) {
    let mut unseen = HashMap::new();
    loop {
        if let Err(e) = maintenance::presence::run_once(&keeper, &mut unseen).await {
            tracing::warn!(error = %e.chain(), "presence could not be told");
        }
        let mut behind = false;
        for watch in keeper.watches.iter() {
            match maintenance::retention::run_once(&keeper, watch).await {
                Ok((removed, more)) => {
                    behind |= more;
                    tracing::trace!(task = %watch.task.name, removed, "terminal jobs trimmed");
                }
                Err(e) => {
                    tracing::warn!(task = %watch.task.name, error = %e.chain(), "terminal jobs could not be trimmed")
                }
            }
        }
        if !behind {
            tokio::time::sleep(HOUSEKEEPING).await;
        }
    }
}
