//! Writes the jobs of one partition. Jobs that are dispatched during a call are gathered and written together.

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::dispatch::{self, Dispatched, NewJob, WrittenJob};
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::replicated;
use crate::backend::shared_connection::SharedConnection;
use crate::backend::tables::Tables;
use crate::backend::timeouts::{doubled, response_time};
use crate::error::Error;
use crate::limits::{BATCH, BATCH_BYTES, LARGE};
use crate::mutex::Mutex;
use crate::options::modes::Copies;

/// How many calls are under way at a time, of a buffer's carriers and of one `dispatch_many`: Redis works on one while the next is
/// encoded.
pub(super) const IN_FLIGHT: usize = 2;

/// How many calls of one buffer may wait for replicas one after another: a lone dispatch, the carriers, and those of a `dispatch_many`.
const IN_FRONT: u32 = 1 + 2 * IN_FLIGHT as u32;

/// The jobs of one partition that wait to be written.
pub(super) struct DispatchBuffer {
    pub(super) store: Arc<Store>,
    tables: Arc<Tables>,
    pub(super) keys: Arc<TaskKeys>,
    /// The replicas to wait for, if any, and the connection for that.
    copies: Option<(Copies, SharedConnection)>,
    /// Whether the task's jobs need all keys of the script.
    all_keys: AtomicBool,
    /// Whether a lone dispatch is under way on its caller's own future.
    alone: AtomicBool,
    pub(super) dropped: CancellationToken,
    /// Whether the log has said that a job existed with another input.
    difference_logged: AtomicBool,
    state: Mutex<BufferState>,
}

#[derive(Default)]
struct BufferState {
    queue: VecDeque<Queued>,
    /// How many carriers run: tokio tasks that write the gathered jobs, each call by call.
    carriers: usize,
}

struct Queued {
    job: Arc<NewJob>,
    deadline: CallDeadline,
    /// Closed if the caller has given up.
    reply: oneshot::Sender<Result<WrittenJob, Error>>,
}

impl Queued {
    fn answer(self, answer: Result<WrittenJob, Error>) {
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
    buffer: Arc<DispatchBuffer>,
    is_done: bool,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.buffer.state.lock();
            state.carriers -= 1;
            let left = std::mem::take(&mut state.queue);
            drop(state);
            drop(left);
        }
    }
}

/// Marks the lone dispatch of a buffer, until it is dropped.
struct Alone<'a>(&'a DispatchBuffer);

impl Alone<'_> {
    /// `None` if another lone call is under way, or jobs are queued.
    fn begin(buffer: &DispatchBuffer) -> Option<Alone<'_>> {
        if buffer.alone.swap(true, Ordering::AcqRel) {
            return None;
        }
        let alone = Alone(buffer);
        (buffer.state.lock().carriers == 0).then_some(alone)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.store(false, Ordering::Release);
    }
}

impl DispatchBuffer {
    pub(super) fn new(
        store: Arc<Store>,
        tables: Arc<Tables>,
        keys: Arc<TaskKeys>,
        copies: Option<Copies>,
    ) -> DispatchBuffer {
        DispatchBuffer {
            tables,
            copies: copies.map(|copies| (copies, store.connection(Role::Replicated))),
            store,
            keys,
            all_keys: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            dropped: CancellationToken::new(),
            difference_logged: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn within(&self) -> Duration {
        self.copies.as_ref().map_or(Duration::ZERO, |(copies, _)| copies.within)
    }

    /// The time limits of a call that is requested now and has this many bytes.
    pub(super) fn deadline(&self, bytes: usize) -> CallDeadline {
        CallDeadline::new(self.store.dispatch_timeout, Instant::now(), bytes).and(self.within())
    }

    /// Writes a job. Returns what the dispatch did.
    pub(super) async fn dispatch(self: &Arc<Self>, job: Arc<NewJob>) -> Result<WrittenJob, Error> {
        let deadline = self.deadline(job.payload.len());
        let first = |written: Vec<WrittenJob>| written.into_iter().next().unwrap_or_else(|| WrittenJob::plain(false));
        let written = if job.payload.len() > LARGE {
            self.write_large(job).await.map(first)
        } else if job.unique.is_some() {
            let one = std::slice::from_ref(&job);
            repeated(deadline, || self.write(one)).await.map(first)
        } else if let Some(_alone) = Alone::begin(self) {
            let one = std::slice::from_ref(&job);
            repeated(deadline, || self.write(one)).await.map(first)
        } else {
            self.join(job, deadline).await
        };
        written.map_err(|e| e.at(self.store.place()))
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// If the task has another number of partitions, or its jobs need keys. The jobs must then be dispatched again.
    fn written(&self, answer: Dispatched) -> Result<Vec<WrittenJob>, Error> {
        match answer {
            Dispatched::Written(written) => {
                // An encoded input may differ each time.
                if written.iter().any(|job| job.differs) && !self.store.codecs.is_any() {
                    let task = self.keys.task();
                    if !self.difference_logged.swap(true, Ordering::Relaxed) {
                        // A log subscriber is user code.
                        let _ = catch_unwind(|| {
                            tracing::info!(task, "a job with the same id has another input, and stays as it is");
                        });
                    }
                }
                Ok(written)
            }
            Dispatched::Partitions(count) => {
                self.tables.learn(count);
                Err(Error::Unsupported { what: format!("the task has {count} partitions") })
            }
            Dispatched::Pointer(pointer) => {
                self.tables.learn_pointer(&pointer);
                Err(Error::Unsupported { what: format!("the jobs of the task have keys, at {pointer}") })
            }
        }
    }

    pub(super) async fn write(&self, jobs: &[impl AsRef<NewJob>]) -> Result<Vec<WrittenJob>, Error> {
        self.store.ready().await?;
        let time = response_time(bytes_of(jobs));
        let written = match &self.copies {
            None => {
                let call = async |conn: &mut _| dispatch::dispatch(conn, &self.keys, jobs, &self.all_keys).await;
                self.written(self.store.shared(time, call).await?)?
            }
            Some((copies, connection)) => {
                let call = async |conn: &mut OwnConnection| {
                    let mut conn = replicated::at_primary(conn, &self.keys).await?;
                    self.write_copied(&mut conn, jobs, *copies).await
                };
                // Other calls may use this connection first.
                connection.call(time + copies.within * IN_FRONT, call).await?
            }
        };
        self.store.register_once(self.keys.task()).await;
        Ok(written)
    }

    /// Writes jobs, and waits until enough replicas have them, even if they existed.
    async fn write_copied(
        &self,
        conn: &mut OwnConnection,
        jobs: &[impl AsRef<NewJob>],
        copies: Copies,
    ) -> Result<Vec<WrittenJob>, Error> {
        let written = self.written(dispatch::dispatch(conn, &self.keys, jobs, &self.all_keys).await?)?;
        replicated::enough(conn, &self.keys, copies).await??;
        Ok(written)
    }

    /// Writes a job on a separate connection, so that no other call waits for it. It needs a permit, which other large jobs may hold; its
    /// time limit begins with the permit. It runs in its own task: a future that is not polled must not block the permits.
    pub(super) async fn write_large(self: &Arc<Self>, job: Arc<NewJob>) -> Result<Vec<WrittenJob>, Error> {
        let buffer = Arc::clone(self);
        let write = async move {
            let turn =
                buffer.store.write_turns().take(buffer.store.dispatch_timeout).await.ok_or_else(Error::timed_out)?;
            let bytes = job.payload.len();
            let time = Mutex::new(response_time(bytes));
            let attempt = || async {
                let given = *time.lock();
                buffer.store.ready().await?;
                let write = async {
                    let conn = buffer.store.dedicated(Role::Shared, None).await?;
                    let mut conn = replicated::at_primary(&conn, &buffer.keys).await?;
                    let write = async {
                        let one = std::slice::from_ref(&job);
                        match &buffer.copies {
                            None => buffer
                                .written(dispatch::dispatch(&mut conn, &buffer.keys, one, &buffer.all_keys).await?),
                            Some((copies, _)) => buffer.write_copied(&mut conn, one, *copies).await,
                        }
                    };
                    let written = tokio::time::timeout(given + buffer.within(), write).await;
                    written.unwrap_or_else(|_| Err(Error::late()))
                };
                let answer = buffer.store.steady(write).await;
                if answer.as_ref().is_err_and(Error::is_late) {
                    *time.lock() = doubled(given);
                }
                answer
            };
            let written = turn.hold(repeated(buffer.deadline(bytes), attempt)).await?;
            buffer.store.register_once(buffer.keys.task()).await;
            Ok(written)
        };
        self.store.runtime().run(write).await
    }

    /// Adds the job to the queue, and waits until a carrier has written it. Returns what the dispatch did.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job is not sent any more, but a call that is under way may contain it.
    async fn join(self: &Arc<Self>, job: Arc<NewJob>, deadline: CallDeadline) -> Result<WrittenJob, Error> {
        let (reply, answer) = oneshot::channel();
        let starts = {
            let mut state = self.state.lock();
            state.queue.push_back(Queued { job, deadline, reply });
            let starts = state.carriers < IN_FLIGHT;
            state.carriers += usize::from(starts);
            starts
        };
        if starts {
            // Release the lock before: if no runtime is left, the carrier is dropped here, which takes it.
            let carrying = Carrying { buffer: Arc::clone(self), is_done: false };
            let dropped = self.dropped.clone();
            self.store.runtime().spawn(async move {
                dropped.run_until_cancelled(carrying.carry()).await;
            });
        }
        answer.await.unwrap_or(Err(Error::Closed))
    }

    fn take(&self) -> Option<Vec<Queued>> {
        let mut state = self.state.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = state.queue.front() {
            bytes += next.job.payload.len();
            if batch.len() == BATCH || (bytes > BATCH_BYTES && !batch.is_empty()) {
                break;
            }
            batch.extend(state.queue.pop_front());
        }
        if batch.is_empty() {
            state.carriers -= 1;
            return None;
        }
        Some(batch)
    }

    /// Returns the error to callers whose time is over, and to all if a repeat cannot help. Queues the other jobs again.
    fn failed(&self, batch: Vec<Queued>, e: &Error) {
        let is_over = {
            let (away, now) = (e.is_outage(), Instant::now());
            move |queued: &Queued| {
                let CallDeadline { deadline, least } = queued.deadline;
                !away || deadline <= now + least
            }
        };
        let (over, again): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| is_over(queued));
        let mut state = self.state.lock();
        again.into_iter().rev().for_each(|queued| state.queue.push_front(queued));
        let mut late = Vec::new();
        if e.is_connection() {
            // Return the error also to queued callers whose time ran out during this call.
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
        loop {
            // Callers that were woken together join the queue together.
            tokio::task::yield_now().await;
            let Some(batch) = self.buffer.take() else { break };
            // Each caller has its own time limit. This call uses that of the first caller, which has waited longest.
            let deadline = batch.first().map_or_else(|| self.buffer.deadline(0), |first| first.deadline);
            let (buffer, jobs) = (&self.buffer, &batch);
            let answer = repeated(deadline, || {
                // If a caller gave up, its job must not be sent.
                let wanted = jobs.iter().enumerate().filter(|(_, queued)| !queued.reply.is_closed());
                let (places, wanted): (Vec<usize>, Vec<&Queued>) = wanted.unzip();
                async move {
                    let written = if wanted.is_empty() { Vec::new() } else { buffer.write(&wanted).await? };
                    let mut answers = vec![None; jobs.len()];
                    places.iter().zip(written).for_each(|(at, written)| answers[*at] = Some(written));
                    Ok(answers)
                }
            });
            match answer.await {
                Ok(answers) => {
                    let answered = batch.into_iter().zip(answers);
                    answered.filter_map(|(queued, written)| Some((queued, written?))).for_each(|(queued, written)| {
                        queued.answer(Ok(written));
                    });
                }
                Err(e) => self.buffer.failed(batch, &e),
            }
        }
        self.is_done = true;
    }
}

pub(super) fn bytes_of(jobs: &[impl AsRef<NewJob>]) -> usize {
    jobs.iter().map(|job| job.as_ref().payload.len()).sum()
}
