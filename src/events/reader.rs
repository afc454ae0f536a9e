//! The event hub of an app, and the task that reads the streams into it.
//!
//! A reader has its own connection, blocked in XREAD over the streams of all declared tasks. It keeps the id of the last
//! entry of each, so that an outage costs no event. Each entry carries the stream's cumulative count of events: what
//! was trimmed before it was read is counted as missed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backon::BackoffBuilder;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant};

use super::subscription::{Channel, Listener, Subscription};
use super::{Event, decode, total_of};
use crate::error::Error;
use crate::job::JobId;
use crate::stall::action::StalledEvent;
use crate::store::streams::Entry;
use crate::store::{Key, Store, TaskKeys, streams};

/// How long one XREAD blocks when nothing comes.
const BLOCK: Duration = Duration::from_secs(5);

/// How long the answer may take beyond that before the connection counts as dead.
const MARGIN: Duration = Duration::from_secs(3);

/// The most entries of one stream a call; an entry of `settle` can hold hundreds of events.
const ENTRIES: usize = 100;

/// After how many events the reader looks whether its subscribers keep up.
const CHUNK: usize = 64;

/// The events of one app: whoever subscribes shares one reader a kind.
pub(crate) struct EventHub {
    stalls: Arc<Channel<StalledEvent>>,
    events: Arc<Channel<Event>>,
}

impl EventHub {
    /// A hub without tasks and readers. `capacity` is how many events a subscriber may be behind.
    pub(crate) fn new(store: Arc<Store>, capacity: usize) -> Arc<EventHub> {
        let source = Arc::new(Source::new(store));
        let stalled = |event| match event {
            Event::Stalled(stalled) => Some(stalled),
            _ => None,
        };
        Arc::new(EventHub {
            stalls: Channel::new(Key::Stalls, stalled, capacity, source.clone()),
            events: Channel::new(Key::Events, Some, capacity, source),
        })
    }

    /// Adds a task: running readers follow it from now on, later ones from their own start.
    pub(crate) fn declare(&self, task: &str) {
        let source = &self.events.source;
        source.tasks.send_if_modified(|tasks| {
            let is_new = tasks.iter().all(|known| *known.name != *task);
            if is_new {
                let keys = source.store.task_keys(task);
                tasks.push(Arc::new(Declared { name: task.into(), keys, at: Instant::now() }));
            }
            is_new
        });
    }

    /// The stalls of every declared task, from now on.
    pub(crate) fn stalled(&self) -> Subscription<StalledEvent> {
        self.stalls.subscribe()
    }

    /// Every event of every declared task, from now on.
    pub(crate) fn all(&self) -> Subscription<Event> {
        self.events.subscribe()
    }

    /// Waits for the end of one job, from now on. Any number of these share the reader of [`EventHub::all`], and an event
    /// costs the same however many wait.
    pub(crate) fn watch(&self, task: &str, id: &JobId) -> Waiter {
        let listener = self.events.listen();
        let waiting = Arc::new(Waiting { task: task.to_owned(), ..Waiting::default() });
        self.events.source.waiting().entry(id.clone()).or_default().push(waiting.clone());
        Waiter { id: id.clone(), waiting, source: self.events.source.clone(), listener }
    }

    /// Ends both readers; every subscriber is told that nothing follows.
    pub(crate) fn close(&self) {
        self.stalls.close();
        self.events.close();
    }
}

impl Drop for EventHub {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for EventHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventHub").finish_non_exhaustive()
    }
}

/// What both readers of a hub read from, and who waits for single jobs.
pub(super) struct Source {
    store: Arc<Store>,
    tasks: watch::Sender<Vec<Arc<Declared>>>,
    waiting: Mutex<HashMap<JobId, Vec<Arc<Waiting>>>>,
}

/// A task of the app.
struct Declared {
    name: Box<str>,
    keys: TaskKeys,
    at: Instant,
}

impl Source {
    fn new(store: Arc<Store>) -> Source {
        Source { store, tasks: watch::Sender::new(Vec::new()), waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<JobId, Vec<Arc<Waiting>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for this job, when the event ends it or takes it away.
    fn tell(&self, event: &Event) {
        if !event.is_terminal() && !matches!(event, Event::Removed { .. }) {
            return;
        }
        let all = self.waiting();
        for waiting in all.get(event.id()).into_iter().flatten().filter(|w| w.task == event.task()) {
            if event.is_terminal() {
                *waiting.ended() = Some(event.clone());
            }
            waiting.woken.notify_one();
        }
    }

    /// Wakes everybody to look at the state, since events may have been missed.
    fn wake_all(&self) {
        self.waiting().values().flatten().for_each(|waiting| waiting.woken.notify_one());
    }
}

#[derive(Default)]
struct Waiting {
    task: String,
    woken: Notify,
    ended: Mutex<Option<Event>>,
}

impl Waiting {
    fn ended(&self) -> MutexGuard<'_, Option<Event>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits for the end of one job.
pub(crate) struct Waiter {
    id: JobId,
    waiting: Arc<Waiting>,
    source: Arc<Source>,
    listener: Listener<Event>,
}

impl Waiter {
    /// Returns when the job may have ended since the last call. Nothing that happens in between is missed, and it may
    /// return for nothing. Starts the reader if need be.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn woken(&self) {
        self.listener.start();
        self.waiting.woken.notified().await;
    }

    /// The event that ended the job, if it came by.
    pub(crate) fn ended(&self) -> Option<Event> {
        self.waiting.ended().clone()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut all = self.source.waiting();
        if let Some(of_job) = all.get_mut(&self.id) {
            of_job.retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
            if of_job.is_empty() {
                all.remove(&self.id);
            }
        }
    }
}

/// How far the stream of a task was read.
struct Position {
    task: Arc<Declared>,
    last_id: String,
    /// The stream's count of events up to there; unknown before the first entry.
    total: Option<u64>,
}

struct Reader<'a, T> {
    channel: &'a Channel<T>,
    since: Instant,
    positions: Vec<Position>,
    /// Whether the connection failed and has not answered since.
    broken: bool,
    pauses: backon::ExponentialBackoff,
    /// Whether a subscriber does not move at all, so that waiting for it is of no use.
    stuck: bool,
}

/// Reads until it is dropped; a lost connection is made again.
pub(super) async fn run<T: Clone + Send + 'static>(channel: &Channel<T>, since: Instant) {
    let mut reader = Reader { channel, since, positions: Vec::new(), broken: false, pauses: backoff(), stuck: false };
    loop {
        let Err(e) = reader.read_on().await;
        if !reader.broken {
            tracing::warn!(error = %e.chain(),
                "events cannot be read; the reader goes on where it stopped when redis answers");
        }
        reader.broken = true;
        tokio::time::sleep(reader.pauses.next().unwrap_or(Duration::from_secs(1))).await;
    }
}

fn backoff() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
        .build()
}

impl<T: Clone + Send + 'static> Reader<'_, T> {
    /// Connects and reads, until the connection fails.
    async fn read_on(&mut self) -> Result<Infallible, Error> {
        let source = self.channel.source.clone();
        let mut tasks = source.tasks.subscribe();
        loop {
            let declared = tasks.borrow_and_update().clone();
            if declared.is_empty() {
                // The sender lives in `source`, so that an error cannot be.
                let _ = tasks.changed().await;
                continue;
            }
            let mut conn = source.store.dedicated(Some(BLOCK + MARGIN)).await?;
            if self.positions.len() < declared.len() {
                let server_ms = streams::server_time_ms(&mut conn).await?;
                self.follow(&declared, server_ms);
            }
            loop {
                let after: Vec<_> = self
                    .positions
                    .iter()
                    .map(|position| (&position.task.keys, self.channel.key, position.last_id.as_str()))
                    .collect();
                let found = tokio::select! {
                    found = streams::read(&mut conn, &after, BLOCK, ENTRIES) => found?,
                    // The block cannot be taken back: the connection is given up with it.
                    Ok(()) = tasks.changed() => break,
                };
                if std::mem::take(&mut self.broken) {
                    self.pauses = backoff();
                    source.wake_all();
                }
                for (at, entries) in found {
                    self.deliver(at, entries).await;
                }
            }
        }
    }

    /// Takes up the tasks that were declared since: from their declaration or the first subscription on, whichever was
    /// later, in terms of the server's clock.
    fn follow(&mut self, declared: &[Arc<Declared>], server_ms: u64) {
        let now = Instant::now();
        for task in &declared[self.positions.len()..] {
            let ago = now.duration_since(task.at.max(self.since));
            let last_id = format!("{}-0", start_ms(server_ms, ago));
            self.positions.push(Position { task: task.clone(), last_id, total: None });
        }
    }

    /// Hands on what a stream had; first to those who wait for a job, since subscribers may have to be waited for.
    async fn deliver(&mut self, at: usize, entries: Vec<Entry>) {
        let mut batch = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(position) = self.positions.get_mut(at) else { return };
            let (missed, events) = read_entry(position, entry);
            if self.channel.key == Key::Events {
                if missed > 0 {
                    self.channel.source.wake_all();
                }
                events.iter().for_each(|event| self.channel.source.tell(event));
            }
            batch.push((missed, events));
        }
        let mut sent = 0;
        for (missed, events) in batch {
            self.channel.missed(missed);
            for event in events.into_iter().filter_map(self.channel.pick) {
                self.channel.send(event);
                sent += 1;
                if sent % CHUNK == 0 {
                    self.pace().await;
                }
            }
        }
    }

    /// Lets subscribers keep up: what is not read yet waits in Redis, where it is safe for longer. For no more than
    /// 50 ms at a time, and not for a subscriber that takes nothing at all.
    async fn pace(&mut self) {
        let (half, mut before) = (self.channel.capacity / 2, self.channel.queued());
        if before <= half {
            self.stuck = false;
        } else if !self.stuck {
            for round in 0..25 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let queued = self.channel.queued();
                if queued <= half {
                    return;
                }
                if round >= 4 && queued >= before {
                    self.stuck = true;
                    return;
                }
                before = queued;
            }
        }
    }
}

/// Where to begin so that nothing of the last `ago` is missed. The margin covers the rounding of the clock and the
/// drift between ours and the server's.
fn start_ms(server_ms: u64, ago: Duration) -> u64 {
    let margin = Duration::from_millis(5) + ago / 1000;
    server_ms.saturating_sub(u64::try_from((ago + margin).as_millis()).unwrap_or(u64::MAX))
}

/// Moves the position behind the entry. Returns how many events in front of it, or in it, cannot be told, and those that can.
fn read_entry(position: &mut Position, entry: Entry) -> (u64, Vec<Event>) {
    let task = &*position.task.name;
    let (decoded, damaged) = match decode(task, &entry) {
        Ok(decoded) => (decoded, false),
        Err(field) => {
            tracing::warn!(task, entry = entry.id, field, "an event entry is damaged and was skipped");
            (super::Decoded::default(), true)
        }
    };
    let total = total_of(&entry);
    let missed = match (position.total, total) {
        // Fields of a later version may be events, which are nobody's loss.
        (Some(before), Some(total)) if !decoded.unknown_fields => {
            total.saturating_sub(before).saturating_sub(decoded.events.len() as u64)
        }
        _ => u64::from(damaged),
    };
    position.total = total.or(position.total);
    position.last_id = entry.id;
    (missed, decoded.events)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::server::EvictionCheck;

    /// A source with no task, whose reader has nothing to connect for.
    pub(in crate::events) fn unreachable_source() -> Arc<Source> {
        let store = Store::open("redis://127.0.0.1:1", "test", EvictionCheck::Refuse).unwrap();
        Arc::new(Source::new(Arc::new(store)))
    }

    fn position() -> Position {
        let keys = TaskKeys::new("test", "t");
        let task = Arc::new(Declared { name: "t".into(), keys, at: Instant::now() });
        Position { task, last_id: "0-0".into(), total: None }
    }

    fn entry(id: &str, fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: id.into(), fields }
    }

    #[test]
    fn what_was_trimmed_is_counted() {
        let mut position = position();
        let mut read = |id: &str, fields: &[(&str, &str)]| {
            let (missed, events) = read_entry(&mut position, entry(id, fields));
            (missed, events.len())
        };
        assert_eq!(read("1-0", &[("total", "50"), ("completed", "a b")]), (0, 2), "no baseline yet");
        assert_eq!(read("2-0", &[("total", "51"), ("completed", "c")]), (0, 1));
        assert_eq!(read("9-0", &[("total", "60"), ("completed", "d e")]), (7, 2));
        assert_eq!(read("10-0", &[("total", "64"), ("retrying", "d e")]), (4, 0), "a damaged entry");
        assert_eq!(read("11-0", &[("total", "70"), ("paused", "d e")]), (0, 0), "a later version");
        assert_eq!(read("12-0", &[("total", "1"), ("completed", "f")]), (0, 1), "the stream began anew");
        assert_eq!(position.last_id, "12-0");
    }

    #[test]
    fn the_start_lies_a_little_before_the_call() {
        assert_eq!(start_ms(100_000, Duration::ZERO), 99_995);
        assert_eq!(start_ms(100_000, Duration::from_secs(10)), 89_985);
        assert_eq!(start_ms(3, Duration::MAX / 4), 0);
    }
}
