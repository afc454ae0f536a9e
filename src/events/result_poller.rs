//! Finds the ends of jobs for callers that wait: one task polls for all of them, in few calls.
//!
//! An event that ends a job triggers a poll at once, and so does a reconnect or a gap. Otherwise polls are rare: the
//! first after a second, then after ever longer pauses.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use super::event::Event;
use crate::backend::connection::OwnConnection;
use crate::backend::engine::Store;
use crate::backend::jobs::{self, StoredJob};
use crate::backend::keys::TaskKeys;
use crate::backend::narrow::{Closings, Narrow};
use crate::backend::settle::Payload;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::values;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::snooze::Snoozes;
use crate::job::state::JobState;
use crate::limits::{BATCH_BYTES, LARGE, LOOK_BATCH, NARROW_BYTES};
use crate::mutex::Mutex;

/// The first pause between two polls of a job; each next one is half as long again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause while events report the ends.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause while events do not report the ends.
const LONGEST_PAUSE_WITHOUT_EVENTS: Duration = Duration::from_secs(5);

/// The most failures that are read in one call.
const FAILURES: usize = 100;

/// How a job ended, or that it does not exist.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The value as JSON, or its size if it is read separately; `None`: no value is kept.
    Completed(Option<Payload>),
    Otherwise(StoredJob),
    /// There is no such job. `seen`: an earlier poll had found it.
    Gone {
        seen: bool,
    },
}

/// The callers that wait, and the task that polls for them.
pub(super) struct ResultWaiters {
    store: Arc<Store>,
    all: Mutex<HashMap<JobId, Vec<Arc<Waiting>>>>,
    /// Signals that a poll is due sooner than planned.
    changed: Notify,
    has_poller: AtomicBool,
    /// Whether the reader of events is connected.
    flowing: AtomicBool,
    /// How often in a row a read was late. Each next read gets twice the time and reads half as much.
    late: AtomicU32,
    /// How often the connection was closed during a read.
    closings: Mutex<Closings>,
    /// Whether all but small values are read separately, since the server closes the connection during larger answers.
    narrow: Narrow,
    /// Held by a poll of a single server: one at a time for each connection.
    turn: AsyncMutex<()>,
}

/// The table of a job.
type Table = (Arc<str>, u32, u32);

pub(super) struct Waiting {
    task: Arc<str>,
    keys: Arc<TaskKeys>,
    pub(super) id: JobId,
    state: Mutex<WaitState>,
    /// Signals that the job has ended, that the event of its end has arrived, or that the polling or reading task has ended.
    pub(super) notice: Notify,
}

struct WaitState {
    next_poll: Instant,
    pause: Duration,
    seen: bool,
    found: Option<Arc<Result<End, Error>>>,
    event: Option<Event>,
}

impl Waiting {
    /// The table of the job: the task, its partition, and the number of partitions.
    fn table(&self) -> Table {
        (Arc::clone(&self.task), self.keys.part(), self.keys.parts())
    }

    pub(super) fn end(&self) -> Option<Result<End, Error>> {
        self.state.lock().found.as_ref().map(|found| match &**found {
            Ok(end) => Ok(end.clone()),
            Err(e) => Err(e.again()),
        })
    }

    /// The event that ended the job, if it has arrived.
    pub(super) fn event(&self) -> Option<Event> {
        self.state.lock().event.clone()
    }

    fn found(&self, end: Arc<Result<End, Error>>) {
        self.state.lock().found = Some(end);
        self.notice.notify_one();
    }
}

impl ResultWaiters {
    pub(super) fn new(store: Arc<Store>) -> Arc<ResultWaiters> {
        Arc::new(ResultWaiters {
            store,
            all: Mutex::default(),
            changed: Notify::new(),
            has_poller: AtomicBool::new(false),
            flowing: AtomicBool::new(false),
            late: AtomicU32::new(0),
            closings: Mutex::default(),
            narrow: Narrow::default(),
            turn: AsyncMutex::new(()),
        })
    }

    /// Polls for the end of a job from now on, until [`ResultWaiters::forget`].
    pub(super) fn poll_for_end(&self, task: &Arc<str>, keys: &Arc<TaskKeys>, id: &JobId) -> Arc<Waiting> {
        let state = WaitState { next_poll: Instant::now(), pause: FIRST_PAUSE, seen: false, found: None, event: None };
        let waiting = Arc::new(Waiting {
            task: Arc::clone(task),
            keys: Arc::clone(keys),
            id: id.clone(),
            state: Mutex::new(state),
            notice: Notify::new(),
        });
        self.all.lock().entry(id.clone()).or_default().push(Arc::clone(&waiting));
        self.changed.notify_waiters();
        waiting
    }

    /// Stops polling for this caller.
    pub(super) fn forget(&self, left: &Arc<Waiting>) {
        let mut all = self.all.lock();
        if let Some(of_job) = all.get_mut(&left.id) {
            of_job.retain(|waiting| !Arc::ptr_eq(waiting, left));
            if of_job.is_empty() {
                all.remove(&left.id);
            }
        }
    }

    /// Handles an event that ends or removes a job.
    pub(super) fn event_arrived(&self, event: &Event) {
        if !event.is_terminal() && !matches!(event, Event::Removed { .. }) {
            return;
        }
        let all = self.all.lock();
        for waiting in all.get(event.id()).into_iter().flatten().filter(|waiting| *waiting.task == *event.task()) {
            let mut state = waiting.state.lock();
            if event.is_terminal() {
                state.event = Some(event.clone());
            }
            state.next_poll = Instant::now();
            drop(state);
            waiting.notice.notify_one();
            self.changed.notify_waiters();
        }
    }

    /// Polls for all jobs now: events may have been missed.
    pub(super) fn poll_all(&self) {
        let now = Instant::now();
        self.all.lock().values().flatten().for_each(|waiting| waiting.state.lock().next_poll = now);
        self.changed.notify_waiters();
    }

    pub(super) fn set_flowing(&self, flowing: bool) {
        self.flowing.store(flowing, Ordering::SeqCst);
    }

    /// Starts the polling task, unless it runs.
    pub(super) fn ensure_poller(self: &Arc<Self>) {
        let Some(runtime) = self.store.runtime().handle() else { return };
        if !self.has_poller.swap(true, Ordering::SeqCst) {
            let poller = ResultPoller(Arc::clone(self));
            runtime.spawn(async move { poller.0.poll().await }.boxed());
        }
    }

    /// Wakes all callers. They start tasks again that have ended.
    pub(super) fn wake_all(&self) {
        self.all.lock().values().flatten().for_each(|waiting| waiting.notice.notify_one());
    }

    /// Polls until no caller waits. Each task, and each partition, is polled separately: in a cluster its node may be unreachable.
    async fn poll(&self) {
        let (mut polls, mut busy) = (FuturesUnordered::new(), HashSet::new());
        loop {
            // Subscribe before polling, so that no signal is missed.
            let changed = self.changed.notified();
            let (due, next) = {
                let all = self.all.lock();
                if all.is_empty() {
                    return;
                }
                let (due, later): (Vec<_>, Vec<_>) = all
                    .values()
                    .flatten()
                    .filter(|waiting| waiting.state.lock().found.is_none() && !busy.contains(&waiting.table()))
                    .partition(|waiting| waiting.state.lock().next_poll <= Instant::now());
                let next = later.iter().map(|waiting| waiting.state.lock().next_poll).min();
                (due.into_iter().cloned().collect::<Vec<_>>(), next)
            };
            // Each job is read once, however many callers wait for it.
            let mut by_table: HashMap<Table, HashMap<JobId, Vec<Arc<Waiting>>>> = HashMap::new();
            for waiting in due {
                let of_table = by_table.entry(waiting.table()).or_default();
                of_table.entry(waiting.id.clone()).or_default().push(waiting);
            }
            for (table, of_table) in by_table {
                busy.insert(table.clone());
                polls.push(async move {
                    let _turn = if self.store.is_cluster() { None } else { Some(self.turn.lock().await) };
                    let groups: Vec<Group> = of_table.values().collect();
                    for some in groups.chunks(LOOK_BATCH) {
                        self.poll_some(some).await;
                    }
                    table
                });
            }
            let until = next.unwrap_or_else(|| Instant::now() + LONGEST_PAUSE);
            tokio::select! {
                Some(table) = polls.next() => {
                    busy.remove(&table);
                }
                () = tokio::time::sleep_until(until) => {}
                () = changed => {}
            }
        }
    }

    /// Polls some jobs of one table, and reports what it finds to their callers.
    async fn poll_some(&self, some: &[Group<'_>]) {
        let asked_at = Instant::now();
        match self.find_ends(some).await {
            Ok(events) => {
                let flowing = events && self.flowing.load(Ordering::SeqCst);
                let longest = if flowing { LONGEST_PAUSE } else { LONGEST_PAUSE_WITHOUT_EVENTS };
                for waiting in some.iter().copied().flatten() {
                    let mut state = waiting.state.lock();
                    // Another poll was requested during this one, which may have come too early to see the end.
                    if state.found.is_none() && state.next_poll <= asked_at {
                        state.seen = true;
                        state.next_poll = Instant::now() + state.pause;
                        state.pause = (state.pause * 3 / 2).min(longest);
                    }
                }
            }
            Err(e) if e.is_outage() => {
                tracing::debug!(error = %e.chain(), "the states of jobs cannot be read; will retry");
                let next = Instant::now() + FIRST_PAUSE;
                some.iter().copied().flatten().for_each(|waiting| waiting.state.lock().next_poll = next);
            }
            Err(e) => {
                for waiting in some.iter().copied().flatten().filter(|waiting| waiting.state.lock().found.is_none()) {
                    waiting.found(Arc::new(Err(e.again())));
                }
            }
        }
    }

    /// Finds which of the jobs have ended, and reports them call by call. Returns whether the task writes events.
    async fn find_ends(&self, some: &[Group<'_>]) -> Result<bool, Error> {
        let Some(keys) = some.iter().find_map(|group| group.first()).map(|first| Arc::clone(&first.keys)) else {
            return Ok(true);
        };
        let ids = |groups: &mut dyn Iterator<Item = Group<'_>>| -> Vec<JobId> {
            groups.filter_map(|group| group.first()).map(|first| first.id.clone()).collect()
        };
        let asked = ids(&mut some.iter().copied());
        let (its_keys, ids_asked) = (&keys, &asked);
        let look = |mut conn| async move { jobs::states(&mut conn, its_keys, ids_asked).await };
        let looked = self.store.ask(RESPONSE_TIMEOUT, look).await?;
        // Values, each with its size, and failures, which are read in a second step.
        let (mut values, mut failures) = (Vec::new(), Vec::new());
        let large = if self.narrow.is_on() { NARROW_BYTES } else { LARGE };
        for (group, job) in some.iter().copied().zip(&looked.jobs) {
            match job {
                None => report(group, End::Gone { seen: group.iter().any(|waiting| waiting.state.lock().seen) }),
                Some((JobState::Completed, 0)) => report(group, End::Completed(None)),
                Some((JobState::Completed, bytes)) if *bytes > large => {
                    report(group, End::Completed(Some(Payload::Apart(*bytes))));
                }
                Some((JobState::Completed, bytes)) => values.push((group, *bytes)),
                Some((state, _)) if state.is_terminal() => failures.push((group, *state)),
                Some(_) => {}
            }
        }
        let mut values = &values[..];
        while !values.is_empty() {
            let (mut bytes, most) = (0, large.min(BATCH_BYTES) >> self.late.load(Ordering::SeqCst).min(10));
            let fits = |(_, size): &&(Group<'_>, usize)| {
                bytes += size;
                bytes <= most
            };
            let (batch, rest) = values.split_at(values.iter().take_while(fits).count().max(1));
            let asked = ids(&mut batch.iter().map(|(group, _)| *group));
            let bytes = batch.iter().map(|(_, bytes)| bytes).sum();
            let read = self.read(bytes, async |conn: &mut _| values::results(conn, &keys, &asked).await).await?;
            for ((group, _), value) in batch.iter().zip(read) {
                // If a value existed before, it was removed together with its job.
                let value = value.map(|value| End::Completed(Some(Payload::Here(value))));
                report(group, value.unwrap_or(End::Gone { seen: true }));
            }
            values = rest;
        }
        for batch in failures.chunks(FAILURES) {
            let asked = ids(&mut batch.iter().map(|(group, _)| *group));
            let read = self.read(BATCH_BYTES, async |conn: &mut _| values::failures(conn, &keys, &asked).await).await?;
            for ((group, state), (failed_attempts, stalled_count, error)) in batch.iter().zip(read) {
                let snoozes = Snoozes::default();
                let job = StoredJob { state: *state, failed_attempts, stalled_count, error, snoozes };
                let is_gone = job.error.is_empty();
                report(group, if is_gone { End::Gone { seen: true } } else { End::Otherwise(job) });
            }
        }
        Ok(looked.events.unwrap_or(true))
    }

    /// Makes a call that reads about this many bytes. Adapts the next calls if this one was late, or if the connection closed during it.
    async fn read<T>(
        &self,
        bytes: usize,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let late = self.late.load(Ordering::SeqCst).min(10);
        let answer = self.store.read(response_time(bytes) * (1 << late), call).await;
        match &answer {
            Ok(_) => {
                self.late.store(0, Ordering::SeqCst);
                // Small answers always get through, so only a large one shows that large answers do.
                if bytes > NARROW_BYTES {
                    self.closings.lock().failed(false);
                }
            }
            Err(e) if e.is_late() => self.late.store(late + 1, Ordering::SeqCst),
            // The server has just reported which jobs have values, so it is reachable.
            Err(e) if self.closings.lock().failed(e.is_broken()) => {
                self.narrow.begin();
            }
            Err(_) => {}
        }
        answer
    }
}

/// The polling task. It ends when no caller waits, or when its runtime ends.
struct ResultPoller(Arc<ResultWaiters>);

impl Drop for ResultPoller {
    fn drop(&mut self) {
        self.0.has_poller.store(false, Ordering::SeqCst);
        // A caller that has come meanwhile starts another one.
        self.0.wake_all();
    }
}

/// The callers that wait for the same job.
type Group<'a> = &'a Vec<Arc<Waiting>>;

/// Reports to all callers of a job how it ended.
fn report(group: Group<'_>, end: End) {
    let end = Arc::new(Ok(end));
    group.iter().for_each(|waiting| waiting.found(Arc::clone(&end)));
}
