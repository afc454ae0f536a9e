//! How jobs reach Redis: calls are repeated while it is away, and what comes while one is under way goes out together.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::{Error, classify};
use crate::store::jobs::{self, BATCH, BATCH_BYTES, NewJob};
use crate::store::{RESPONSE_TIMEOUT, Store, TaskKeys};

/// How long a call is repeated while Redis is away.
const REPEAT_FOR: Duration = Duration::from_secs(10);

/// The least that one attempt is given, also when the time for repeats is over.
const LEAST_ATTEMPT: Duration = Duration::from_secs(1);

/// How many calls of one `dispatch_many` are under way at a time: Redis works on one while the next is encoded.
const IN_FLIGHT: usize = 2;

/// Makes the call, and again while Redis cannot be reached or a failover is under way, until the deadline.
///
/// # Errors
/// What the last call said; `Connect` with a time-out when even that did not end.
pub(crate) async fn repeated_until<T, F>(deadline: Instant, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pauses = None;
    loop {
        let end = deadline.max(Instant::now() + LEAST_ATTEMPT);
        let answer = tokio::time::timeout_at(end, call()).await.unwrap_or_else(|_| {
            let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Err(classify("connect", timed_out.into()))
        });
        match answer {
            Err(e) if e.is_demoted() || e.is_connection() && e.is_retryable() => {
                let pauses = pauses.get_or_insert_with(|| {
                    backon::ExponentialBuilder::default()
                        .with_min_delay(Duration::from_millis(20))
                        .with_max_delay(Duration::from_millis(500))
                        .with_jitter()
                        .without_max_times()
                        .build()
                });
                let pause = pauses.next().unwrap_or(Duration::from_millis(500));
                if Instant::now() + pause >= deadline {
                    return Err(e);
                }
                tracing::debug!(error = %e.chain(), "redis cannot be reached; the call is repeated");
                tokio::time::sleep(pause).await;
            }
            answer => return answer,
        }
    }
}

/// Makes the call, and again for 10 s while Redis cannot be reached.
pub(crate) async fn repeated<T, F>(call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    repeated_until(Instant::now() + REPEAT_FOR, call).await
}

/// Carries the jobs of one task to Redis.
///
/// A lone dispatch goes out on its caller's own future. Those that come while a call is under way gather, and go out
/// together in the next one. No job is held back to wait for more.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    lane: Arc<Lane>,
}

impl Dispatcher {
    pub(crate) fn new(store: Arc<Store>, keys: Arc<TaskKeys>) -> Dispatcher {
        Dispatcher { lane: Arc::new(Lane { store, keys, all_keys: AtomicBool::new(false), state: Mutex::default() }) }
    }

    /// Writes a job. Returns whether it existed before.
    ///
    /// # Cancel safety
    /// The job may be written or not when the future is dropped; jobs of other callers are not touched.
    pub(crate) async fn dispatch(&self, mut job: NewJob) -> Result<bool, Error> {
        let since = Instant::now();
        loop {
            let queued = {
                let mut state = self.lane.state();
                if state.busy {
                    let (reply, answer) = oneshot::channel();
                    state.queue.push_back(Queued { job, ticket: Ticket { since, reply } });
                    Ok(answer)
                } else {
                    state.busy = true;
                    Err(job)
                }
            };
            match queued {
                Err(job) => {
                    let _turn = Turn(&self.lane);
                    let one = std::slice::from_ref(&job);
                    let existed = repeated_until(since + REPEAT_FOR, || self.lane.write(one)).await?;
                    return Ok(existed.first().copied().unwrap_or(false));
                }
                Ok(answer) => match answer.await {
                    Ok(Answer::Done(result)) => return result,
                    Ok(Answer::Back(own)) => job = own,
                    // Every ticket is answered, if only by the drop of its flusher.
                    Err(_) => return Err(Error::Closed),
                },
            }
        }
    }

    /// Writes jobs in calls of bounded size, two of which are under way at a time. Returns, job by job, whether it
    /// existed before.
    ///
    /// # Errors
    /// `Partial` with the jobs that are known to be written.
    pub(crate) async fn dispatch_many(&self, jobs: Vec<NewJob>) -> Result<Vec<bool>, Error> {
        let mut chunks = chunks(&jobs).into_iter();
        let write = |range: Range<usize>| {
            let chunk = &jobs[range.clone()];
            async move { (range, repeated(|| self.lane.write(chunk)).await) }
        };
        let mut under_way: FuturesOrdered<_> = chunks.by_ref().take(IN_FLIGHT).map(write).collect();
        let (mut existed, mut dispatched, mut failure) = (Vec::with_capacity(jobs.len()), Vec::new(), None);
        // After a failure no further call is made, but what is under way is waited for: it may have been written.
        while let Some((range, answer)) = under_way.next().await {
            match answer {
                Ok(chunk) => {
                    dispatched.push(range);
                    existed.extend(chunk);
                }
                Err(e) => {
                    failure.get_or_insert(e);
                }
            }
            if failure.is_none() {
                under_way.extend(chunks.next().map(write));
            }
        }
        match failure {
            None => Ok(existed),
            Some(source) => {
                let written = dispatched.into_iter().flatten();
                let dispatched = written.map(|at| jobs[at].id.clone()).collect();
                Err(Error::Partial { dispatched, source: Box::new(source) })
            }
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // Whoever awaits a dispatch keeps its dispatcher: what is left was given up by its callers.
        if let Some(flusher) = self.lane.state().flusher.take() {
            flusher.abort();
        }
    }
}

/// Splits the jobs into calls.
fn chunks(jobs: &[NewJob]) -> Vec<Range<usize>> {
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, job) in jobs.iter().enumerate() {
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

/// The one call of a task that is under way, and the jobs that wait for the next.
struct Lane {
    store: Arc<Store>,
    keys: Arc<TaskKeys>,
    /// The task's jobs need all keys of the script.
    all_keys: AtomicBool,
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    /// Whether somebody has the turn. It is only ever given up with the queue empty.
    busy: bool,
    queue: VecDeque<Queued>,
    flusher: Option<AbortHandle>,
}

struct Queued {
    job: NewJob,
    ticket: Ticket,
}

/// What a caller waits with.
struct Ticket {
    since: Instant,
    reply: oneshot::Sender<Answer>,
}

enum Answer {
    Done(Result<bool, Error>),
    /// Nobody is there to carry the job any more; the caller has to do it.
    Back(NewJob),
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, jobs: &[NewJob]) -> Result<Vec<bool>, Error> {
        self.store.ready().await?;
        let call = async |conn: &mut _| jobs::dispatch(conn, &self.keys, jobs, &self.all_keys).await;
        self.store.shared(RESPONSE_TIMEOUT, call).await
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

/// The turn of a caller that makes its own call. It passes to a flusher when others have come, also when the
/// caller's future is dropped in the middle.
struct Turn<'a>(&'a Arc<Lane>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.queue.is_empty() {
            state.busy = false;
            return;
        }
        drop(state);
        let flusher = Flusher { lane: self.0.clone(), jobs: Vec::new(), tickets: Vec::new(), over: false };
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(flusher.run());
            self.0.state().flusher = Some(task.abort_handle());
        }
    }
}

/// Carries what has gathered, call by call, until nothing is left.
struct Flusher {
    lane: Arc<Lane>,
    jobs: Vec<NewJob>,
    tickets: Vec<Ticket>,
    over: bool,
}

impl Flusher {
    async fn run(mut self) {
        while self.take() {
            // Each caller waits for 10 s of its own; the first of them is the one that came first.
            let deadline = self.tickets.first().map_or_else(Instant::now, |first| first.since) + REPEAT_FOR;
            let answer = repeated_until(deadline, || self.lane.write(&self.jobs)).await;
            self.answer(answer);
        }
    }

    /// Takes the next jobs; gives up the turn when there is none.
    fn take(&mut self) -> bool {
        let mut state = self.lane.state();
        let mut bytes = 0;
        while let Some(next) = state.queue.front() {
            bytes += next.job.payload.len();
            if self.jobs.len() == BATCH || (bytes > BATCH_BYTES && !self.jobs.is_empty()) {
                break;
            }
            if let Some(Queued { job, ticket }) = state.queue.pop_front() {
                self.jobs.push(job);
                self.tickets.push(ticket);
            }
        }
        if self.jobs.is_empty() {
            state.busy = false;
            self.over = true;
        }
        !self.over
    }

    fn answer(&mut self, answer: Result<Vec<bool>, Error>) {
        let (jobs, tickets) = (self.jobs.drain(..), self.tickets.drain(..));
        let e = match answer {
            Ok(existed) => {
                for (ticket, existed) in tickets.zip(existed) {
                    // A caller that gave up has nobody to tell.
                    let _ = ticket.reply.send(Answer::Done(Ok(existed)));
                }
                return;
            }
            Err(e) => e,
        };
        let is_over = {
            let (away, now) = (matches!(e, Error::Connect { .. }) && e.is_retryable(), Instant::now());
            move |ticket: &Ticket| !away || ticket.since + REPEAT_FOR <= now + LEAST_ATTEMPT
        };
        let mut state = self.lane.state();
        let batch = jobs.zip(tickets).map(|(job, ticket)| Queued { job, ticket });
        let (mut over, back): (Vec<Queued>, Vec<Queued>) = batch.partition(|queued| is_over(&queued.ticket));
        back.into_iter().rev().for_each(|queued| state.queue.push_front(queued));
        // Those whose time ran out in the queue, while this call was repeated, learn it now.
        if matches!(e, Error::Connect { .. }) {
            while let Some(queued) = pop_if(&mut state.queue, is_over) {
                over.push(queued);
            }
        }
        drop(state);
        for queued in over {
            let _ = queued.ticket.reply.send(Answer::Done(Err(same(&e))));
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // The runtime that carried us is going; callers on another one take their jobs back.
        let mut state = self.lane.state();
        let waiting: Vec<Queued> = state.queue.drain(..).collect();
        state.busy = false;
        drop(state);
        let batch = self.jobs.drain(..).zip(self.tickets.drain(..));
        let batch = batch.map(|(job, ticket)| Queued { job, ticket });
        for Queued { job, ticket } in batch.chain(waiting) {
            let _ = ticket.reply.send(Answer::Back(job));
        }
    }
}

fn pop_if(queue: &mut VecDeque<Queued>, is_over: impl Fn(&Ticket) -> bool) -> Option<Queued> {
    if is_over(&queue.front()?.ticket) { queue.pop_front() } else { None }
}

/// The error of a call, for one more of the jobs that it carried.
fn same(e: &Error) -> Error {
    match e {
        Error::Connect { source } => Error::Connect { source: source.clone() },
        Error::Refused { source } => Error::Refused { source: source.clone() },
        Error::Script { name, source } => Error::Script { name, source: source.clone() },
        Error::Unsupported { what } => Error::Unsupported { what: what.clone() },
        Error::Config(faults) => Error::Config(faults.clone()),
        Error::Closed => Error::Closed,
        // A call of many jobs ends in none of the others.
        other => Error::Unsupported { what: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobId;
    use crate::options::Overrides;

    fn job(bytes: usize) -> NewJob {
        NewJob {
            id: JobId::generate(),
            payload: vec![b'1'; bytes],
            delay: None,
            priority: None,
            overrides: Overrides::default(),
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
        assert!(chunks(&[]).is_empty());
    }

    #[tokio::test]
    async fn only_a_lost_connection_is_a_reason_to_repeat() {
        let mut calls = 0;
        let answer = repeated(|| {
            calls += 1;
            let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            let answer = if calls < 3 { Err(classify("dispatch", away.into())) } else { Err(Error::Closed) };
            std::future::ready::<Result<(), Error>>(answer)
        });
        assert!(matches!(answer.await, Err(Error::Closed)));
        assert_eq!(calls, 3);
    }
}
