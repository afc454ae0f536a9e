//! Writes jobs to Redis. Repeats calls while Redis is unreachable, and sends jobs together that come during a call.

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

use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::dispatch::{self, Dispatched, NewJob};
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::replicated;
use crate::backend::shared_connection::SharedConnection;
use crate::backend::tables::{Tables, part_of};
use crate::backend::timeouts::{doubled, response_time};
use crate::error::Error;
use crate::job::id::JobId;
use crate::limits::{BATCH, BATCH_BYTES, LARGE};
use crate::options::modes::{Copies, Durability};

/// How many calls of one `dispatch_many` are under way at a time: Redis works on one while the next is encoded.
const IN_FLIGHT: usize = 2;

/// Up to this many partitions each get that number of calls, since they may be on different nodes.
const NODES: usize = 4;

/// How many calls of one lane may wait for replicas one after another: a lone one, the carrier's, and those of a `dispatch_many`.
const IN_FRONT: u32 = 2 + IN_FLIGHT as u32;

/// Sends the jobs of one task to Redis.
///
/// A lone dispatch is sent by its caller's own future. That call carries no other job, since the future may never be polled again.
/// Dispatches that come meanwhile gather, and a task on the runtime of the App sends them together. No job waits for more jobs to come.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    tables: Arc<Tables>,
    /// How many partitions the task should have, if the options say so, and whether that was checked.
    wanted: Option<u32>,
    agreed: AtomicBool,
    /// The lane of a task with one partition, for jobs that wait for no replicas.
    lane: Arc<DispatchBuffer>,
    /// The other lanes, by partition, number of partitions, number of replicas and time to wait for them.
    others: Mutex<BTreeMap<LaneKey, Arc<DispatchBuffer>>>,
}

type LaneKey = (u32, u32, Option<Copies>);

/// How often jobs are dispatched again because the number of partitions turned out to be different.
const LAYOUTS: usize = 3;

impl Dispatcher {
    pub(crate) fn new(store: Arc<Store>, tables: Arc<Tables>, wanted: Option<u32>) -> Dispatcher {
        let lane = Arc::new(DispatchBuffer::new(store, Arc::clone(&tables), tables.first(), None));
        Dispatcher { tables, wanted, agreed: AtomicBool::new(false), lane, others: Mutex::default() }
    }

    /// The lane of a job, with the known partitions of the task.
    fn lane(&self, id: &JobId, durability: Durability) -> Arc<DispatchBuffer> {
        if durability.copies().is_none() && self.tables.parts() == 1 && self.lane.keys.parts() == 1 {
            return Arc::clone(&self.lane);
        }
        self.lane_to(self.tables.of(id.as_str()), durability)
    }

    /// The lane to a table.
    fn lane_to(&self, keys: Arc<TaskKeys>, durability: Durability) -> Arc<DispatchBuffer> {
        let copies = durability.copies();
        let mut lanes = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry((keys.parts(), keys.part(), copies)).or_insert_with(|| {
            let (store, tables) = (Arc::clone(&self.lane.store), Arc::clone(&self.tables));
            Arc::new(DispatchBuffer::new(store, tables, keys, copies))
        });
        Arc::clone(lane)
    }

    /// Makes sure, once, that the task has as many partitions as its options say.
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

    /// Handles a changed number of partitions: if the options ask for one, checks it again.
    async fn agree_again(&self) -> Result<(), Error> {
        self.agreed.store(false, Ordering::Release);
        self.agree().await
    }

    /// Writes a job. Returns whether it existed before.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may be written or not, but nothing is sent from then on. Jobs of other callers are not affected.
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

    /// Writes jobs in calls of bounded size, two of which are under way at a time. Returns for each job whether it existed before.
    ///
    /// # Errors
    /// `Partial` with the jobs that are known to be written.
    pub(crate) async fn dispatch_many(&self, jobs: Vec<NewJob>, durability: Durability) -> Result<Vec<bool>, Error> {
        self.agree().await?;
        let jobs: Vec<Arc<NewJob>> = jobs.into_iter().map(Arc::new).collect();
        for _ in 1..LAYOUTS {
            let tables = self.tables.all();
            match self.write_many(&tables, &jobs, durability).await {
                // Some jobs may be written already; repeating them is safe, since they keep their ids.
                Err(_) if tables.len() != self.tables.parts() as usize => self.agree_again().await?,
                answer => return answer,
            }
        }
        self.write_many(&self.tables.all(), &jobs, durability).await
    }

    /// Writes jobs, each to its table.
    async fn write_many(
        &self,
        tables: &[Arc<TaskKeys>],
        jobs: &[Arc<NewJob>],
        durability: Durability,
    ) -> Result<Vec<bool>, Error> {
        let nodes = if durability.copies().is_some() { 1 } else { tables.len().min(NODES) };
        let mut calls = calls(tables.len(), jobs).into_iter();
        // Once replicas have not confirmed a call in time, the other calls do not wait for replicas.
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
        // After a failure no further call is made. Calls under way are awaited: they may have written jobs.
        while let Some((places, answer)) = under_way.next().await {
            match answer {
                Ok(chunk) => {
                    places.iter().zip(chunk).for_each(|(at, was_there)| existed[*at] = was_there);
                    dispatched.extend(places);
                }
                // Its jobs are written, and the others will be too.
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
        // The caller of a dispatch keeps its dispatcher alive, so the callers of the jobs that are left have given up.
        let others = self.others.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in others.values().chain([&self.lane]) {
            lane.dropped.cancel();
        }
    }
}

fn bytes_of(jobs: &[impl AsRef<NewJob>]) -> usize {
    jobs.iter().map(|job| job.as_ref().payload.len()).sum()
}

/// Groups the jobs into calls, each for one partition, with the positions of its jobs. The partitions take turns.
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
struct DispatchBuffer {
    store: Arc<Store>,
    tables: Arc<Tables>,
    keys: Arc<TaskKeys>,
    /// The replicas to wait for, if any, and the connection for that.
    copies: Option<(Copies, SharedConnection)>,
    /// Whether the task's jobs need all keys of the script.
    all_keys: AtomicBool,
    /// Whether a lone dispatch is under way on its caller's own future.
    alone: AtomicBool,
    dropped: CancellationToken,
    state: Mutex<BufferState>,
}

#[derive(Default)]
struct BufferState {
    queue: VecDeque<Queued>,
    /// Whether a carrier runs: the task that writes the gathered jobs.
    is_carried: bool,
}

struct Queued {
    job: Arc<NewJob>,
    patience: CallDeadline,
    /// Closed if the caller has given up.
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

/// A running carrier. If it is dropped because the runtime of the App has ended, the callers of its jobs get an error.
struct Carrying {
    lane: Arc<DispatchBuffer>,
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

/// The lone dispatch of a lane, until it is dropped.
struct Alone<'a>(&'a DispatchBuffer);

impl Alone<'_> {
    /// `None` if another lone call is under way, or jobs are queued.
    fn go(lane: &DispatchBuffer) -> Option<Alone<'_>> {
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

impl DispatchBuffer {
    fn new(store: Arc<Store>, tables: Arc<Tables>, keys: Arc<TaskKeys>, copies: Option<Copies>) -> DispatchBuffer {
        DispatchBuffer {
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

    fn within(&self) -> Duration {
        self.copies.as_ref().map_or(Duration::ZERO, |(copies, _)| copies.within)
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time limits of a call that is requested now and has this many bytes.
    fn patience(&self, bytes: usize) -> CallDeadline {
        CallDeadline::new(self.store.dispatch_timeout, Instant::now(), bytes).and(self.within())
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

    /// Reads the answer. If the task has another number of partitions, the jobs must be dispatched again.
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
                // Other calls may use this connection first.
                line.call(time + copies.within * IN_FRONT, call).await?
            }
        };
        self.store.register_once(self.keys.task()).await;
        Ok(existed)
    }

    /// Writes jobs, existing ones included, and waits for their replicas.
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

    /// Writes a job on a separate connection, so that no other call waits for it. It needs a permit, which other large jobs may hold; its
    /// time limit begins with the permit. It runs in its own task: a future that is not polled must not block the permits.
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
                    let conn = lane.store.dedicated(Role::Shared, None).await?;
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
    /// If the future is dropped, the job is not sent any more; a call that is under way may contain it.
    async fn join(self: &Arc<Self>, job: Arc<NewJob>, patience: CallDeadline) -> Result<bool, Error> {
        let (reply, answer) = oneshot::channel();
        let starts = {
            let mut state = self.state();
            state.queue.push_back(Queued { job, patience, reply });
            !std::mem::replace(&mut state.is_carried, true)
        };
        if starts {
            // Do this without the lock: if no runtime is left, the carrier is dropped here.
            let carrying = Carrying { lane: Arc::clone(self), is_done: false };
            let dropped = self.dropped.clone();
            self.store.runtime().spawn(async move {
                dropped.run_until_cancelled(carrying.carry()).await;
            });
        }
        answer.await.unwrap_or(Err(Error::Closed))
    }

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

    /// Returns the error to callers whose time is over, and to all if a repeat cannot help. Queues the other jobs again.
    fn failed(&self, batch: Vec<Queued>, e: &Error) {
        let is_over = {
            let (away, now) = (e.is_outage(), Instant::now());
            move |queued: &Queued| {
                let CallDeadline { deadline, least } = queued.patience;
                !away || deadline <= now + least
            }
        };
        let (over, again): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| is_over(queued));
        let mut state = self.state();
        again.into_iter().rev().for_each(|queued| state.queue.push_front(queued));
        let mut late = Vec::new();
        if e.is_connection() {
            // Callers in the queue whose time ran out during this call get the error now.
            while state.queue.front().is_some_and(&is_over) {
                late.extend(state.queue.pop_front());
            }
        }
        drop(state);
        over.into_iter().chain(late).for_each(|queued| queued.answer(Err(e.again())));
    }
}

impl Carrying {
    /// Writes the gathered jobs, call by call, until the queue is empty.
    async fn carry(mut self) {
        // Yield, so that callers that were woken together join the queue together.
        tokio::task::yield_now().await;
        while let Some(batch) = self.lane.take() {
            // Each caller has its own time limit. This call uses that of the first caller, which has waited longest.
            let patience = batch.first().map_or_else(|| self.lane.patience(0), |first| first.patience);
            let (lane, jobs) = (&self.lane, &batch);
            let answer = repeated(patience, || {
                // If a caller gave up, its job must not be sent.
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

impl fmt::Debug for DispatchBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchBuffer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::classify::classify;
    use crate::job::id::JobId;
    use crate::options::overrides::Overrides;

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
    async fn only_a_lost_connection_causes_a_repeat() {
        let mut calls = 0;
        let patience = CallDeadline::new(Duration::from_secs(10), Instant::now(), 0);
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
