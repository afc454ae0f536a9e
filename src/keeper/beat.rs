//! Beats: every third of an interval all that a worker holds of a task is named to Redis, by whatever road gets there.
//!
//! | road | taken when | counts for the witness |
//! |---|---|---|
//! | own | always first | yes |
//! | new | a tenth of the interval has passed without all answers, or our own connection failed | begins its watch anew |
//! | shared | at the same time, if the connection of dispatch and settle is up | no |
//!
//! All calls of a beat are under way together, and each answer keeps its jobs; what is left goes over the other roads too.
//! Between two beats, jobs whose handlers ring are named by themselves, in a few calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::line::Keeper;
use super::watch::TaskWatch;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::limits::BEAT_BATCH;
use crate::process::held::{Flags, Held};
use crate::process::task::TaskRuntime;
use crate::stall::cadence;
use crate::store::connection::OwnConnection;
use crate::store::extend_locks::{self, Beaten, HeldJob};
use crate::store::settle;

/// Which road a beat went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Own,
    New,
    Shared,
}

/// Beats for a task: every period, at once when asked to, and again soon after a failure.
pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskWatch>) {
    let period = watch.task.beat_period();
    let retries = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(cadence::longest_beat_pause(watch.task.options.interval))
        .without_max_times();
    let mut pauses = retries.build();
    let mut due = clock::now();
    loop {
        let beaten = whole(&keeper, &watch, due).await;
        let now = clock::now();
        let is_well = matches!(beaten, Ok(Via::Own | Via::New));
        if beaten.is_ok() {
            keeper.answered("beat", watch.task.index);
        }
        if is_well {
            pauses = retries.build();
            due = due.after(period).max(now);
        } else {
            // What did not come back over a connection of our own is no watch; one is tried again soon.
            watch.witness().broken(now);
            let pause = pauses.next().unwrap_or(period);
            due = now.after(pause);
            let task = Arc::clone(&watch.task.name);
            match beaten {
                Err(e) if e.is_outage() => keeper.unanswered("beat", watch.task.index, e),
                Err(e) => {
                    keeper.log.line(move || tracing::warn!(%task, error = %e.chain(), ?pause, "a beat was refused"));
                }
                Ok(_) => {
                    keeper.log.line(move || tracing::debug!(%task, ?pause, "beaten over the shared connection"));
                }
            }
        }
        watch.witness().next_beat_at(due);
        wait(&keeper, &watch, due, is_well).await;
        due = due.min(clock::now());
    }
}

/// Waits until the next beat is due or asked for. Meanwhile the jobs that ring are beaten for, five times a period at the
/// most, and not while calls fail.
async fn wait(keeper: &Keeper, watch: &TaskWatch, due: Moment, is_well: bool) {
    let task = &watch.task;
    let mut next_extra = clock::now();
    loop {
        let rung = async {
            task.rung.notified().await;
            tokio::time::sleep(next_extra.since(clock::now())).await;
        };
        tokio::select! {
            () = tokio::time::sleep(due.since(clock::now())) => return,
            () = task.beat_now.notified() => return,
            () = rung, if is_well => {}
        }
        next_extra = clock::now().after(cadence::extra_beat_pause(task.options.interval));
        let round = Round::new(keeper, watch, Roll::of_rung(task));
        let over_own = keeper.call(watch, async |conn| round.over(conn).await);
        // The beat that is due is not kept waiting; it names these jobs too.
        let answer = tokio::time::timeout(due.since(clock::now()), over_own).await;
        round.end();
        if matches!(answer, Ok(Err(_))) {
            return;
        }
    }
}

/// Beats once for every held job of the task.
async fn whole(keeper: &Keeper, watch: &TaskWatch, due: Moment) -> Result<Via, Error> {
    let task = &watch.task;
    let started = clock::now();
    let roll = Roll::of_all(task);
    let is_empty = roll.extend.is_empty() && roll.asked.is_empty() && roll.unanswered.is_empty();
    let round = Round::new(keeper, watch, roll);
    let answered = by_any_road(keeper, watch, &round).await;
    round.end();
    let (via, heard) = (answered?, *round.heard());
    let now = clock::now();
    if via != Via::Shared {
        watch.witness().beat_answered(due, now, heard.epoch, heard.interval);
        watch.pass().heard(heard.candidates, heard.active, now.since(started));
        watch.seen.notify_one();
    }
    let (took, was_fresh, was_slow) = (now.since(started), task.beats_are_fresh(), task.beats_are_slow());
    // A worker that holds nothing may claim, however long the round trip.
    task.beat_answered(started, if is_empty { Duration::ZERO } else { took });
    if task.beats_are_slow() && !was_slow {
        let (task, period) = (Arc::clone(&task.name), task.beat_period());
        keeper.log.line(move || {
            let advice = "no more jobs are claimed until heartbeats take less than half of their period; a longer stall \
                interval, or a lower concurrency, gives them more time";
            tracing::warn!(%task, ?took, ?period, "{advice}");
        });
    }
    if !was_fresh {
        task.poke.notify_one();
    }
    if heard.declared_at < task.stamp
        && let Err(e) = keeper.declare_again(watch).await
    {
        let task = Arc::clone(&task.name);
        keeper.log.line(
            move || tracing::warn!(%task, error = %e.chain(), "the options of the task could not be declared again"),
        );
    }
    Ok(via)
}

/// Sends the calls of a beat over our own connection, and after a tenth of the interval over the others too. Returns which
/// road brought the last answer.
async fn by_any_road(keeper: &Keeper, watch: &TaskWatch, round: &Round<'_>) -> Result<Via, Error> {
    let (period, interval) = (watch.task.beat_period(), watch.task.options.interval);
    // A line that is just long is no dead one.
    let patience = cadence::first_road(interval, watch.pass().round_trip());
    let store = &keeper.worker.store;
    let number = AtomicU64::new(0);
    // Another task's may be as dead as ours.
    let newest = keeper.newest_number();
    let own = async {
        let (conn, its_number) = keeper.line(watch).await?;
        number.store(its_number, Ordering::SeqCst);
        let answer = round.over(&conn).await;
        answer.inspect_err(|e| keeper.failed(watch, its_number, e))
    };
    tokio::pin!(own);
    let mut failure = None;
    match tokio::time::timeout(patience, &mut own).await {
        Ok(Ok(())) => return Ok(Via::Own),
        // A server that is not ready, or refuses, may not be the one to which a new connection leads.
        Ok(Err(e)) if e.ends_connection() || e.is_connection() => failure = Some(e),
        Ok(Err(e)) => return Err(e),
        Err(_) => {}
    }
    let new = async {
        let (mut conn, mut its_number) = keeper.connect(number.load(Ordering::SeqCst).max(newest)).await?;
        if its_number == number.load(Ordering::SeqCst) {
            // Our own line has come up meanwhile. It may be silent.
            (conn, its_number) = keeper.connect(its_number).await?;
        }
        round.over(&conn).await.inspect_err(|e| keeper.failed(watch, its_number, e))?;
        Ok::<_, Error>((conn, its_number))
    };
    let shared = async {
        let (conn, before) = store.shared_if_up().ok_or(Error::Closed)?;
        let answer = round.over(&conn).await;
        answer.inspect_err(|e| store.shared_failed(before, e))
    };
    tokio::pin!(new, shared);
    let end = tokio::time::sleep(period);
    tokio::pin!(end);
    let (mut own_open, mut new_open, mut shared_open) = (failure.is_none(), true, true);
    loop {
        tokio::select! {
            biased;
            answer = &mut own, if own_open => match answer {
                Ok(()) => return Ok(Via::Own),
                Err(e) => (own_open, failure) = (false, Some(e)),
            },
            answer = &mut new, if new_open => match answer {
                Ok(line) => {
                    watch.give_up(number.load(Ordering::SeqCst));
                    *watch.line() = Some(line);
                    return Ok(Via::New);
                }
                Err(e) => {
                    new_open = false;
                    failure.get_or_insert(e);
                }
            },
            answer = &mut shared, if shared_open => match answer {
                Ok(()) => {
                    watch.give_up(number.load(Ordering::SeqCst));
                    return Ok(Via::Shared);
                }
                Err(_) => shared_open = false,
            },
            () = &mut end, if own_open || new_open || shared_open => {
                watch.give_up(number.load(Ordering::SeqCst));
                return Err(failure.unwrap_or_else(Error::timed_out));
            }
            else => return Err(failure.unwrap_or_else(Error::timed_out)),
        }
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

impl Roll {
    fn of_all(task: &TaskRuntime) -> Roll {
        // Asked first: the jobs of a claim that is answered by now are in the table.
        let unanswered = task.claims.older_than(cadence::old_claim(task.options.interval));
        let all = task.held.all();
        for held in &all {
            held.take_ring();
        }
        let (extend, asked) = all.into_iter().partition(|held| held.take_beat());
        Roll { extend, asked, unanswered }
    }

    /// As many of the jobs that ring as one call names; the others come with the next beat.
    fn of_rung(task: &TaskRuntime) -> Roll {
        let rung = task.held.all().into_iter().filter(|held| held.take_ring()).take(BEAT_BATCH);
        let (extend, asked) = rung.partition(|held| held.take_beat());
        Roll { extend, asked, unanswered: Vec::new() }
    }
}

/// One call of a beat.
enum Part {
    Jobs {
        extend: Vec<Arc<Held>>,
        asked: Vec<Arc<Held>>,
    },
    /// All that a claim was given, which its record says.
    Claim {
        line: usize,
        number: u64,
    },
}

/// What the answers told.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    epoch: u64,
    interval: Duration,
    declared_at: u64,
    candidates: u64,
    active: u64,
}

/// The calls of one beat, over whatever roads they are sent.
struct Round<'a> {
    keeper: &'a Keeper,
    watch: &'a TaskWatch,
    parts: Vec<(Part, std::sync::atomic::AtomicBool)>,
    heard: Mutex<Heard>,
}

impl<'a> Round<'a> {
    fn new(keeper: &'a Keeper, watch: &'a TaskWatch, roll: Roll) -> Round<'a> {
        let mut parts: Vec<Part> = Vec::new();
        let extend = roll.extend.chunks(BEAT_BATCH);
        parts.extend(extend.map(|chunk| Part::Jobs { extend: chunk.to_vec(), asked: Vec::new() }));
        let asked = roll.asked.chunks(BEAT_BATCH);
        parts.extend(asked.map(|chunk| Part::Jobs { extend: Vec::new(), asked: chunk.to_vec() }));
        if parts.is_empty() {
            // One call at least tells the epoch.
            parts.push(Part::Jobs { extend: Vec::new(), asked: Vec::new() });
        }
        parts.extend(roll.unanswered.into_iter().map(|(line, number)| Part::Claim { line, number }));
        let parts = parts.into_iter().map(|part| (part, false.into())).collect();
        Round { keeper, watch, parts, heard: Mutex::default() }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the calls that are unanswered, all together; returns when each has its answer, from here or elsewhere.
    async fn over(&self, conn: &OwnConnection) -> Result<(), Error> {
        let sent = clock::now();
        let open = self.parts.iter().filter(|(_, answered)| !answered.load(Ordering::SeqCst));
        let mut calls: FuturesUnordered<_> = open
            .map(|(part, answered)| async move {
                self.call(conn.clone(), part, sent).await?;
                answered.store(true, Ordering::SeqCst);
                Ok(())
            })
            .collect();
        let mut failure = None;
        while let Some(answer) = calls.next().await {
            if let Err(e) = answer {
                failure.get_or_insert(e);
            }
            if self.parts.iter().all(|(_, answered)| answered.load(Ordering::SeqCst)) {
                return Ok(());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn call(&self, mut conn: OwnConnection, part: &Part, sent: Moment) -> Result<(), Error> {
        let (task, worker) = (&self.watch.task, &self.keeper.worker);
        let named = |jobs: &[Arc<Held>]| -> Vec<HeldJob> {
            jobs.iter().map(|held| HeldJob { id: held.id.clone(), fence: held.fence }).collect()
        };
        let (extend, asked) = match part {
            Part::Jobs { extend, asked } => (named(extend), named(asked)),
            Part::Claim { line, number } => {
                let call = (*line, *number);
                let claimed = match settle::claimed_by(&mut conn, &task.keys, worker.id.as_str(), call).await {
                    Ok(claimed) => claimed,
                    Err(e) if e.ends_connection() => return Err(e),
                    // Settle tells of it. The held jobs must be beaten for all the same.
                    Err(_) => return Ok(()),
                };
                if claimed.is_empty() {
                    return Ok(());
                }
                (claimed.into_iter().map(|(id, fence)| HeldJob { id, fence }).collect(), Vec::new())
            }
        };
        let ask = task.options.interval;
        let answer =
            extend_locks::extend_locks(&mut conn, &task.keys, worker.id.as_str(), ask, &extend, &asked).await?;
        self.take_in(part, &answer, sent);
        Ok(())
    }

    fn take_in(&self, part: &Part, answer: &Beaten, sent: Moment) {
        let task = &self.watch.task;
        match part {
            Part::Jobs { extend, .. } => {
                let kept = extend.iter().filter(|held| !answer.lost.contains(&held.fence));
                kept.for_each(|held| held.extended(sent));
            }
            Part::Claim { line, number } if answer.lost.is_empty() => task.claims.beaten(*line, *number, sent),
            Part::Claim { .. } => {}
        }
        for fence in &answer.lost {
            if let Some(held) = task.held.get(*fence) {
                self.keeper.lost(task, &held);
            }
        }
        for held in answer.cancelled.iter().filter_map(|fence| task.held.get(*fence)) {
            held.post(Flags::CANCELLED);
        }
        let mut heard = self.heard();
        // The answers may come in any order; the epoch only grows, and the candidates become fewer.
        let candidates =
            if answer.epoch == heard.epoch { heard.candidates.min(answer.candidates) } else { answer.candidates };
        if answer.epoch >= heard.epoch {
            let Beaten { epoch, interval, declared_at, active, .. } = *answer;
            *heard = Heard { epoch, interval, declared_at, candidates, active };
        }
    }

    /// The handlers' signs of life that did not get through are still to be told.
    fn end(&self) {
        for (part, answered) in &self.parts {
            if let (Part::Jobs { extend, .. }, false) = (part, answered.load(Ordering::SeqCst)) {
                extend.iter().for_each(|held| held.return_beat());
            }
        }
    }
}

impl Keeper {
    /// Redis says that somebody else decides about the job.
    pub(crate) fn lost(&self, task: &TaskRuntime, held: &Arc<Held>) {
        // A finished job is settled by now, or about to be told by the settle itself.
        if !held.flags().intersects(Flags::FINISHED) && !held.flags().intersects(Flags::LOST) {
            let (task, job_id, fence) = (Arc::clone(&task.name), held.id.clone(), held.fence);
            self.log.line(move || {
                tracing::warn!(%task, %job_id, fence, "lost: the lock of the job is gone, another worker may hold it");
            });
        }
        held.post(Flags::LOST);
    }
}
