//! How jobs reach Redis: calls are repeated while it is away, and what comes while one is under way goes out together.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::job::id::JobId;
use crate::limits::{BATCH, BATCH_BYTES, LARGE};
use crate::options::modes::{Copies, Durability};
use crate::store::address::Role;
use crate::store::connection::OwnConnection;
use crate::store::dispatch::{self, Dispatched, NewJob};
use crate::store::engine::Store;
use crate::store::keys::TaskKeys;
use crate::store::patience::{doubled, response_time};
use crate::store::repeated::{Patience, repeated};
use crate::store::replicated;
use crate::store::slot::Slot;
use crate::store::tables::{Tables, part_of};

/// How many calls of one `dispatch_many` are under way at a time: Redis works on one while the next is encoded.
const IN_FLIGHT: usize = 2;

/// The same for each partition, which may be on another node, but for so many at the most.
const NODES: usize = 4;

/// How many calls of one lane may wait for replicas one behind the other: a lone one, the carrier's, and those of a `dispatch_many`.
const IN_FRONT: u32 = 2 + IN_FLIGHT as u32;

/// Carries the jobs of one task to Redis.
///
/// A lone dispatch goes out on its caller's own future, which carries no other job: that future may never be polled again.
/// Dispatches that come while it is under way gather, and go out together in a task on the runtime of the App. No job is
/// held back to wait for more.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    tables: Arc<Tables>,
    /// How many partitions the task is to have, where that was said, and whether it was agreed upon.
    wanted: Option<u32>,
    agreed: AtomicBool,
    /// That of a task with one partition, for jobs that wait for no replicas.
    lane: Arc<Lane>,
    /// The others: of which partition of how many, and how many replicas are waited for, how long.
    others: Mutex<BTreeMap<LaneKey, Arc<Lane>>>,
}

type LaneKey = (u32, u32, Option<Copies>);

/// How often jobs are dispatched anew since the task has another number of partitions than was known.
const LAYOUTS: usize = 3;

impl Dispatcher {
    pub(crate) fn new(store: Arc<Store>, tables: Arc<Tables>, wanted: Option<u32>) -> Dispatcher {
        let lane = Arc::new(Lane::new(store, Arc::clone(&tables), tables.first(), None));
        Dispatcher { tables, wanted, agreed: AtomicBool::new(false), lane, others: Mutex::default() }
    }

    /// The lane of a job, as far as the partitions of the task are known.
    fn lane(&self, id: &JobId, durability: Durability) -> Arc<Lane> {
        if durability.copies().is_none() && self.tables.parts() == 1 && self.lane.keys.parts() == 1 {
            return Arc::clone(&self.lane);
        }
        self.lane_to(self.tables.of(id.as_str()), durability)
    }

    /// The lane to a table.
    fn lane_to(&self, keys: Arc<TaskKeys>, durability: Durability) -> Arc<Lane> {
        let copies = durability.copies();
        let mut lanes = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry((keys.parts(), keys.part(), copies)).or_insert_with(|| {
            let (store, tables) = (Arc::clone(&self.lane.store), Arc::clone(&self.tables));
            Arc::new(Lane::new(store, tables, keys, copies))
        });
        Arc::clone(lane)
    }

    /// Sees to it, once, that the task has as many partitions as its options say.
    async fn agree(&self) -> Result<(), Error> {
        let Some(wanted) = self.wanted.filter(|_| !self.agreed.load(Ordering::Acquire)) else { return Ok(()) };
        let store = &self.lane.store;
        let agree = || async {
            store.ready().await?;
            self.tables.claim(store, wanted).await
        };
        repeated(self.lane.patience(0), agree).await?;
        self.agreed.store(true, Ordering::Release);
        Ok(())
    }

    /// The task has another number of partitions than was known: where one was asked for that may not be it any more.
    async fn agree_again(&self) -> Result<(), Error> {
        self.agreed.store(false, Ordering::Release);
        self.agree().await
    }

    /// Writes a job. Returns whether it existed before.
    ///
    /// # Cancel safety
    /// The job may be written or not when the future is dropped, but nothing is sent from then on; jobs of other callers
    /// are not touched.
    pub(crate) async fn dispatch(&self, job: NewJob, durability: Durability) -> Result<bool, Error> {
        self.agree().await?;
        let job = Arc::new(job);
        for _ in 1..LAYOUTS {
            let lane = self.lane(&job.id, durability);
            match lane.dispatch(Arc::clone(&job)).await {
                Err(_) if lane.keys.parts() != self.tables.parts() => self.agree_again().await?,
                answer => return answer,
            }
        }
        self.lane(&job.id, durability).dispatch(job).await
    }

    /// Writes jobs in calls of bounded size, two of which are under way at a time. Returns, job by job, whether it
    /// existed before.
    ///
    /// # Errors
    /// `Partial` with the jobs that are known to be written.
    pub(crate) async fn dispatch_many(&self, jobs: Vec<NewJob>, durability: Durability) -> Result<Vec<bool>, Error> {
        self.agree().await?;
        let jobs: Vec<Arc<NewJob>> = jobs.into_iter().map(Arc::new).collect();
        for _ in 1..LAYOUTS {
            let tables = self.tables.all();
            match self.write_many(&tables, &jobs, durability).await {
                // What may be written by then is found again by its id.
                Err(_) if tables.len() != self.tables.parts() as usize => self.agree_again().await?,
                answer => return answer,
            }
        }
        self.write_many(&self.tables.all(), &jobs, durability).await
    }

    /// Writes jobs to these tables, each to its own.
    async fn write_many(
        &self,
        tables: &[Arc<TaskKeys>],
        jobs: &[Arc<NewJob>],
        durability: Durability,
    ) -> Result<Vec<bool>, Error> {
        let nodes = if durability.copies().is_some() { 1 } else { tables.len().min(NODES) };
        let mut calls = calls(tables.len(), jobs).into_iter();
        // Once replicas were waited for in vain they are not waited for at each of the other calls.
        let is_alone = AtomicBool::new(false);
        let write = |(part, places): (usize, Vec<usize>)| {
            let durability = if is_alone.load(Ordering::Relaxed) { Durability::Memory } else { durability };
            let lane = self.lane_to(Arc::clone(&tables[part]), durability);
            async move {
                let chunk: Vec<Arc<NewJob>> = places.iter().map(|at| Arc::clone(&jobs[*at])).collect();
                let answer = match &chunk[..] {
                    [job] if job.payload.len() > LARGE => lane.write_large(Arc::clone(job)).await,
                    chunk => repeated(lane.patience(bytes_of(chunk)), || lane.write(chunk)).await,
                };
                (places, answer)
            }
        };
        let mut under_way: FuturesOrdered<_> = calls.by_ref().take(IN_FLIGHT * nodes).map(write).collect();
        let (mut existed, mut dispatched, mut failure) = (vec![false; jobs.len()], Vec::new(), None);
        let mut alone = None;
        // After a failure no further call is made, but what is under way is waited for: it may have been written.
        while let Some((places, answer)) = under_way.next().await {
            match answer {
                Ok(chunk) => {
                    places.iter().zip(chunk).for_each(|(at, was_there)| existed[*at] = was_there);
                    dispatched.extend(places);
                }
                // They are written, and so are the others then.
                Err(e @ Error::NotReplicated { .. }) => {
                    dispatched.extend(places);
                    is_alone.store(true, Ordering::Relaxed);
                    alone.get_or_insert(e);
                }
                Err(e) => {
                    failure.get_or_insert(e);
                }
            }
            if failure.is_none() {
                under_way.extend(calls.next().map(write));
            }
        }
        match failure.or(alone) {
            None => Ok(existed),
            Some(source) => {
                dispatched.sort_unstable();
                let dispatched = dispatched.into_iter().map(|at: usize| jobs[at].id.clone()).collect();
                Err(Error::Partial { dispatched, source: Box::new(source) })
            }
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // Whoever awaits a dispatch keeps its dispatcher: what is left was given up by its callers.
        let others = self.others.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in others.values().chain([&self.lane]) {
            lane.dropped.cancel();
        }
    }
}

fn bytes_of(jobs: &[impl AsRef<NewJob>]) -> usize {
    jobs.iter().map(|job| job.as_ref().payload.len()).sum()
}

/// The calls for the jobs, each of one partition of so many, with the places of its jobs; those of different ones in turn.
fn calls(parts: usize, jobs: &[Arc<NewJob>]) -> Vec<(usize, Vec<usize>)> {
    let mut of_part = vec![Vec::new(); parts];
    for (at, job) in jobs.iter().enumerate() {
        of_part[part_of(job.id.as_str(), parts)].push(at);
    }
    let mut calls = Vec::new();
    for (part, places) in of_part.into_iter().enumerate() {
        let its: Vec<&NewJob> = places.iter().map(|at| &*jobs[*at]).collect();
        let its = chunks(&its).into_iter().enumerate();
        calls.extend(its.map(|(turn, range)| (turn, part, places[range].to_vec())));
    }
    calls.sort_by_key(|(turn, ..)| *turn);
    calls.into_iter().map(|(_, part, places)| (part, places)).collect()
}

/// Splits the jobs into calls.
fn chunks(jobs: &[impl AsRef<NewJob>]) -> Vec<Range<usize>> {
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, job) in jobs.iter().map(AsRef::as_ref).enumerate() {
        if at > start && (at - start == BATCH || bytes + job.payload.len() > BATCH_BYTES) {
            chunks.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += job.payload.len();
    }
    if start < jobs.len() {
        chunks.push(start..jobs.len());
    }
    chunks
}

/// The jobs of a task that wait to be written.
struct Lane {
    store: Arc<Store>,
    tables: Arc<Tables>,
    keys: Arc<TaskKeys>,
    /// The copies that are waited for, if any are, and the connection for it.
    copies: Option<(Copies, Slot)>,
    /// The task's jobs need all keys of the script.
    all_keys: AtomicBool,
    /// Whether a lone dispatch is under way on its caller's own future.
    alone: AtomicBool,
    /// Its dispatcher was dropped.
    dropped: CancellationToken,
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    queue: VecDeque<Queued>,
    /// Whether a carrier is there: the task that writes what has gathered.
    is_carried: bool,
}

/// A job whose caller waits.
struct Queued {
    job: Arc<NewJob>,
    patience: Patience,
    /// Closed when the caller has given up.
    reply: oneshot::Sender<Result<bool, Error>>,
}

impl Queued {
    fn answer(self, answer: Result<bool, Error>) {
        // A caller that gave up does not read it.
        let _ = self.reply.send(answer);
    }
}

impl AsRef<NewJob> for Queued {
    fn as_ref(&self) -> &NewJob {
        &self.job
    }
}

/// A carrier at work. One that is dropped, since the runtime of the App has ended, leaves its jobs: their callers get an error.
struct Carrying {
    lane: Arc<Lane>,
    is_done: bool,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.lane.state();
            state.is_carried = false;
            let left = std::mem::take(&mut state.queue);
            drop(state);
            drop(left);
        }
    }
}

/// The one lone dispatch of a lane, until it is dropped.
struct Alone<'a>(&'a Lane);

impl Alone<'_> {
    /// None when another call is under way, or others wait.
    fn go(lane: &Lane) -> Option<Alone<'_>> {
        if lane.alone.swap(true, Ordering::AcqRel) {
            return None;
        }
        let alone = Alone(lane);
        (!lane.state().is_carried).then_some(alone)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.store(false, Ordering::Release);
    }
}

impl Lane {
    fn new(store: Arc<Store>, tables: Arc<Tables>, keys: Arc<TaskKeys>, copies: Option<Copies>) -> Lane {
        Lane {
            tables,
            copies: copies.map(|copies| (copies, store.line(Role::Replicated))),
            store,
            keys,
            all_keys: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            dropped: CancellationToken::new(),
            state: Mutex::default(),
        }
    }

    /// How long a call waits for replicas.
    fn within(&self) -> Duration {
        self.copies.as_ref().map_or(Duration::ZERO, |(copies, _)| copies.within)
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a call that is asked for now and carries so many bytes.
    fn patience(&self, bytes: usize) -> Patience {
        Patience::new(self.store.dispatch_timeout, Instant::now(), bytes).and(self.within())
    }

    /// Writes a job. Returns whether it existed before.
    async fn dispatch(self: &Arc<Self>, job: Arc<NewJob>) -> Result<bool, Error> {
        let patience = self.patience(job.payload.len());
        let is_first = |existed: Vec<bool>| existed.first().copied().unwrap_or(false);
        let existed = if job.payload.len() > LARGE {
            self.write_large(job).await.map(is_first)
        } else if let Some(_alone) = Alone::go(self) {
            let one = std::slice::from_ref(&job);
            repeated(patience, || self.write(one)).await.map(is_first)
        } else {
            self.join(job, patience).await
        };
        existed.map_err(|e| e.at(self.store.place()))
    }

    /// What was answered. Where the task has another number of partitions the jobs are to be dispatched anew.
    fn existed(&self, answer: Dispatched) -> Result<Vec<bool>, Error> {
        match answer {
            Dispatched::Existed(existed) => Ok(existed),
            Dispatched::Partitions(count) => {
                self.tables.learn(count);
                Err(Error::Unsupported { what: format!("the task has {count} partitions") })
            }
        }
    }

    async fn write(&self, jobs: &[impl AsRef<NewJob>]) -> Result<Vec<bool>, Error> {
        self.store.ready().await?;
        let time = response_time(bytes_of(jobs));
        let existed = match &self.copies {
            None => {
                let call = async |conn: &mut _| dispatch::dispatch(conn, &self.keys, jobs, &self.all_keys).await;
                self.existed(self.store.shared(time, call).await?)?
            }
            Some((copies, line)) => {
                let call = async |conn: &mut OwnConnection| {
                    let mut conn = replicated::at_primary(conn, &self.keys).await?;
                    self.write_copied(&mut conn, jobs, *copies).await
                };
                // Others may be waited for in front of it.
                line.call(time + copies.within * IN_FRONT, call).await?
            }
        };
        self.store.register_once(self.keys.task()).await;
        Ok(existed)
    }

    /// Writes jobs, those that exist included, and waits for their copies.
    async fn write_copied(
        &self,
        conn: &mut OwnConnection,
        jobs: &[impl AsRef<NewJob>],
        copies: Copies,
    ) -> Result<Vec<bool>, Error> {
        let existed = self.existed(dispatch::dispatch(conn, &self.keys, jobs, &self.all_keys).await?)?;
        replicated::enough(conn, &self.keys, copies).await??;
        Ok(existed)
    }

    /// Writes a job on a connection of its own, where nothing waits behind it; in a turn, which other large jobs may have to wait
    /// for, and from which on its time counts. In a task of its own: a future that is not polled must not keep them waiting.
    async fn write_large(self: &Arc<Self>, job: Arc<NewJob>) -> Result<Vec<bool>, Error> {
        let lane = Arc::clone(self);
        let write = async move {
            let turn = lane.store.write_turns().take(lane.store.dispatch_timeout).await.ok_or_else(Error::timed_out)?;
            let bytes = job.payload.len();
            let time = Mutex::new(response_time(bytes));
            let attempt = || async {
                let given = *time.lock().unwrap_or_else(PoisonError::into_inner);
                lane.store.ready().await?;
                let write = async {
                    let conn = lane.store.dedicated(Role::Pool, None).await?;
                    let mut conn = replicated::at_primary(&conn, &lane.keys).await?;
                    let write = async {
                        let one = std::slice::from_ref(&job);
                        match &lane.copies {
                            None => lane.existed(dispatch::dispatch(&mut conn, &lane.keys, one, &lane.all_keys).await?),
                            Some((copies, _)) => lane.write_copied(&mut conn, one, *copies).await,
                        }
                    };
                    let written = tokio::time::timeout(given + lane.within(), write).await;
                    written.unwrap_or_else(|_| Err(Error::late()))
                };
                let answer = lane.store.steady(write).await;
                if answer.as_ref().is_err_and(Error::is_late) {
                    *time.lock().unwrap_or_else(PoisonError::into_inner) = doubled(given);
                }
                answer
            };
            let existed = turn.hold(repeated(lane.patience(bytes), attempt)).await?;
            lane.store.register_once(lane.keys.task()).await;
            Ok(existed)
        };
        self.store.runtime().run(write).await
    }

    /// Adds the job to the queue, and waits until the carrier has written it. Returns whether it existed before.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job is not sent any more; a call that is under way may carry it.
    async fn join(self: &Arc<Self>, job: Arc<NewJob>, patience: Patience) -> Result<bool, Error> {
        let (reply, answer) = oneshot::channel();
        let starts = {
            let mut state = self.state();
            state.queue.push_back(Queued { job, patience, reply });
            !std::mem::replace(&mut state.is_carried, true)
        };
        if starts {
            // Without the lock: where no runtime is left, the carrier is dropped here.
            let carrying = Carrying { lane: Arc::clone(self), is_done: false };
            let dropped = self.dropped.clone();
            self.store.runtime().spawn(async move {
                dropped.run_until_cancelled(carrying.carry()).await;
            });
        }
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Takes the jobs of the next call.
    fn take(&self) -> Option<Vec<Queued>> {
        let mut state = self.state();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = state.queue.front() {
            bytes += next.job.payload.len();
            if batch.len() == BATCH || (bytes > BATCH_BYTES && !batch.is_empty()) {
                break;
            }
            batch.extend(state.queue.pop_front());
        }
        if batch.is_empty() {
            state.is_carried = false;
            return None;
        }
        Some(batch)
    }

    /// Gives the error to those whose time is over, or whom no repetition helps. The others are carried again.
    fn failed(&self, batch: Vec<Queued>, e: &Error) {
        let is_over = {
            let (away, now) = (e.is_outage(), Instant::now());
            move |queued: &Queued| {
                let Patience { deadline, least } = queued.patience;
                !away || deadline <= now + least
            }
        };
        let (over, again): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| is_over(queued));
        let mut state = self.state();
        again.into_iter().rev().for_each(|queued| state.queue.push_front(queued));
        let mut late = Vec::new();
        if e.is_connection() {
            // Those whose time ran out in the queue, while this call was repeated, learn it now.
            while state.queue.front().is_some_and(&is_over) {
                late.extend(state.queue.pop_front());
            }
        }
        drop(state);
        over.into_iter().chain(late).for_each(|queued| queued.answer(Err(e.again())));
    }
}

impl Carrying {
    /// Carries what has gathered, call by call, until nothing is left.
    async fn carry(mut self) {
        // Callers that were woken together get to queue together.
        tokio::task::yield_now().await;
        while let Some(batch) = self.lane.take() {
            // Each caller waits for a time of its own; the first of them is the one that came first.
            let patience = batch.first().map_or_else(|| self.lane.patience(0), |first| first.patience);
            let (lane, jobs) = (&self.lane, &batch);
            let answer = repeated(patience, || {
                // A caller that gave up wants nothing sent any more.
                let wanted = jobs.iter().enumerate().filter(|(_, queued)| !queued.reply.is_closed());
                let (places, wanted): (Vec<usize>, Vec<&Queued>) = wanted.unzip();
                async move {
                    let written = if wanted.is_empty() { Vec::new() } else { lane.write(&wanted).await? };
                    let mut existed = vec![None; jobs.len()];
                    places.iter().zip(written).for_each(|(at, was_there)| existed[*at] = Some(was_there));
                    Ok(existed)
                }
            });
            match answer.await {
                Ok(existed) => {
                    let written = batch.into_iter().zip(existed);
                    written.filter_map(|(queued, existed)| Some((queued, existed?))).for_each(|(queued, existed)| {
                        queued.answer(Ok(existed));
                    });
                }
                Err(e) => self.lane.failed(batch, &e),
            }
        }
        self.is_done = true;
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::JobId;
    use crate::options::overrides::Overrides;
    use crate::store::fault::classify;

    fn job(bytes: usize) -> NewJob {
        NewJob {
            id: JobId::generate(),
            payload: vec![b'1'; bytes],
            priority: None,
            overrides: Overrides::default(),
            expires_after: None,
            dispatched_at_ms: None,
        }
    }

    #[test]
    fn chunks_are_bounded_in_jobs_and_bytes_and_cover_all_in_order() {
        let jobs: Vec<NewJob> = (0..2 * BATCH + 1).map(|_| job(1)).collect();
        assert_eq!(chunks(&jobs), [0..BATCH, BATCH..2 * BATCH, 2 * BATCH..2 * BATCH + 1]);
        let half = BATCH_BYTES / 2;
        let sizes = [half, half, 1, BATCH_BYTES + 1, 1];
        assert_eq!(chunks(&sizes.map(job)), [0..2, 2..3, 3..4, 4..5]);
        assert!(chunks(&[] as &[NewJob]).is_empty());
    }

    #[tokio::test]
    async fn only_a_lost_connection_is_a_reason_to_repeat() {
        let mut calls = 0;
        let patience = Patience::new(Duration::from_secs(10), Instant::now(), 0);
        let answer = repeated(patience, || {
            calls += 1;
            let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            let answer = if calls < 3 { Err(classify("dispatch", away.into())) } else { Err(Error::Closed) };
            std::future::ready::<Result<(), Error>>(answer)
        });
        assert!(matches!(answer.await, Err(Error::Closed)));
        assert_eq!(calls, 3);
    }
}
