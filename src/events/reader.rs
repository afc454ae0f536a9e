//! The task that reads the event streams into a channel.
//!
//! A reader has a separate connection, blocked in XREAD on the streams of all declared tasks. It keeps the id of the
//! last entry of each, so that no event is lost in an outage. Each entry contains the stream's cumulative count of
//! events. So the reader can count the events that were trimmed before it read them.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::channel::Channel;
use super::decode::total_of;
use super::position::{Position, is_before, read_entry, start_ms};
use super::source::{Followed, Source};
use super::stream_event::StreamEvent;
use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::stream_reader::{self, StreamsApart};
use crate::backend::streams::{self, Entry};
use crate::backoff::Pauses;
use crate::error::Error;
use crate::join::{join_all, try_join_all};

/// How long one XREAD blocks without entries.
const BLOCK: Duration = Duration::from_secs(5);

/// How much longer the answer may take before the connection counts as dead.
const MARGIN: Duration = Duration::from_secs(3);

/// The most entries of one stream in a call; an entry of `settle` can hold hundreds of events. After a late answer, the
/// limit is halved and the time doubled.
const ENTRIES: usize = 100;

/// How often the limit is halved at most.
const HALVINGS: u32 = 6;

/// How long a reader waits for more new tasks before it reconnects to read them.
const GATHER: Duration = Duration::from_millis(10);

/// How many streams are asked for their last entries at a time.
const TOGETHER: usize = 200;

/// After how many events the reader checks whether its subscribers keep up.
const CHUNK: usize = 64;

/// Entries, with the index of the position of their stream.
type FoundEntries = Vec<(usize, Vec<Entry>)>;

struct Reader<'a, T: Clone + Send + 'static> {
    channel: &'a Channel<T>,
    /// Its number.
    reader: u64,
    since: Instant,
    positions: Vec<Position>,
    /// Whether the connection failed and has not answered since.
    broken: bool,
    pauses: Pauses,
    /// Whether a subscriber makes no progress at all. Waiting for it is then useless.
    stuck: bool,
    /// How often an answer was late since all entries were last read.
    late: u32,
    /// Events that were read and are not sent yet.
    unsent: u64,
}

impl<T: Clone + Send + 'static> Drop for Reader<'_, T> {
    /// If the runtime ends and subscribers remain, the next reader continues from here.
    fn drop(&mut self) {
        self.channel.reader_stopped(self.reader, std::mem::take(&mut self.positions), self.unsent);
    }
}

/// Reads until it is dropped, and reconnects when the connection is lost.
pub(super) fn run<T: Clone + Send + 'static>(
    channel: Arc<Channel<T>>,
    reader: u64,
    since: Instant,
) -> BoxFuture<'static, ()> {
    Box::pin(async move { read(&channel, reader, since).await })
}

async fn read<T: Clone + Send + 'static>(channel: &Channel<T>, reader: u64, since: Instant) {
    let positions = channel.positions_to_resume();
    let pauses = Pauses::until_answered();
    let broken = !positions.is_empty();
    let mut reader = Reader { channel, reader, since, positions, broken, pauses, stuck: false, late: 0, unsent: 0 };
    loop {
        let Err(e) = reader.read_on().await;
        if !reader.broken {
            tracing::warn!(error = %e.chain(),
                "events cannot be read; when redis answers again, reading continues where it stopped");
        }
        reader.broken = true;
        if channel.key == Key::Events {
            channel.source.waiters.set_flowing(false);
        }
        tokio::time::sleep(reader.pauses.next()).await;
    }
}

impl<T: Clone + Send + 'static> Reader<'_, T> {
    /// Connects and reads, until the connection fails.
    async fn read_on(&mut self) -> Result<Infallible, Error> {
        let source = self.channel.source.clone();
        let mut added = source.added.subscribe();
        loop {
            added.borrow_and_update();
            if source.followed().is_empty() {
                // Cannot fail: the sender lives in `source`.
                let _ = added.changed().await;
                continue;
            }
            let time = (BLOCK + MARGIN) * (1 << self.late);
            let (store, primary_epoch) = (&source.store, source.store.primary_epoch());
            let mut conn = store.dedicated(Role::Events, Some(time)).await?;
            if !self.begin(&source, &conn, primary_epoch).await? {
                continue;
            }
            let (mut first, mut apart) = (true, StreamsApart::default());
            let (mut gaps_at, mut asked_at) = (Instant::now(), Instant::now());
            loop {
                let is_first = std::mem::take(&mut first);
                let found = self.read_next(&mut conn, &mut apart, &added, primary_epoch, is_first).await?;
                let Some(found) = found else { break };
                // Cluster nodes that refuse the call are reachable.
                let is_answered = apart.has_answered || !conn.is_routed();
                self.note_answer(&found, is_first, is_answered);
                // On one server, a stream that went back is noticed when all are empty. In a cluster, look for one even while
                // others have events.
                let is_quiet = found.is_empty() && !is_first;
                if is_quiet || conn.is_routed() && gaps_at.elapsed() >= BLOCK {
                    store.steady_since(primary_epoch, self.find_gaps(&conn, &apart.away())).await?;
                    gaps_at = Instant::now();
                }
                if asked_at.elapsed() >= BLOCK {
                    learn_partitions(&source, &conn).await;
                    asked_at = Instant::now();
                }
                for (at, entries) in found {
                    self.deliver(at, entries).await;
                }
                // There is a new task, or a new number of partitions.
                added.mark_unchanged();
                if is_any_new(&source, &self.positions) {
                    break;
                }
            }
        }
    }

    /// Finds, over a new connection, where to begin reading. Returns false if the last task was dropped meanwhile.
    async fn begin(&mut self, source: &Source, conn: &OwnConnection, primary_epoch: u64) -> Result<bool, Error> {
        learn_partitions(source, conn).await;
        let followed = source.followed();
        if followed.is_empty() {
            return Ok(false);
        }
        self.follow_on(&followed);
        let parts = parts_of(&followed);
        let keys: Vec<_> = parts.iter().map(|(_, keys)| &**keys).collect();
        let servers_ms = source.store.steady_since(primary_epoch, streams::server_times_ms(conn, &keys)).await?;
        self.begin_new_tasks(&parts, &servers_ms);
        source.store.steady_since(primary_epoch, self.find_gaps(conn, &[])).await?;
        Ok(true)
    }

    /// The most entries of one stream in a call.
    fn entries(&self) -> usize {
        (ENTRIES >> self.late).max(1)
    }

    /// Reads the next entries of the streams, by position. Returns `None` if there is a new task first.
    async fn read_next(
        &mut self,
        conn: &mut OwnConnection,
        apart: &mut StreamsApart,
        added: &watch::Receiver<()>,
        primary_epoch: u64,
        is_first: bool,
    ) -> Result<Option<FoundEntries>, Error> {
        let (source, entries) = (&self.channel.source, self.entries());
        let after: Vec<_> = self
            .positions
            .iter()
            .map(|position| (&position.keys, self.channel.key, position.last_id.as_str()))
            .collect();
        let found = if is_first {
            // Do not wait for new tasks here: each connection must first return something.
            let block = if conn.is_routed() { streams::NODE_PATIENCE } else { Duration::ZERO };
            stream_reader::read(conn, apart, &after, block, entries).await
        } else {
            let read = stream_reader::read(conn, apart, &after, BLOCK, entries);
            tokio::select! {
                found = source.store.steady_since(primary_epoch, read) => found,
                // A blocking call cannot be withdrawn, so the connection is dropped with it. If `new_task` saw
                // a change and the read finished first, the caller's check finds the change.
                () = new_task(source, added.clone(), &self.positions) => return Ok(None),
            }
        };
        if let Err(e) = &found {
            self.late = (self.late + u32::from(e.is_timeout())).min(HALVINGS);
        }
        found.map(Some)
    }

    /// Records that the streams were read, and whether a server answered.
    fn note_answer(&mut self, found: &[(usize, Vec<Entry>)], is_first: bool, is_answered: bool) {
        if found.iter().all(|(_, some)| some.len() < self.entries()) && !is_first {
            // All entries were read.
            self.late = 0;
        }
        let waiters = &self.channel.source.waiters;
        if is_answered && std::mem::take(&mut self.broken) {
            self.pauses.reset();
            waiters.poll_all();
        }
        if is_answered && self.channel.key == Key::Events {
            waiters.set_flowing(true);
        }
    }

    /// Continues with the tasks that are in use, including those that were dropped and followed again. Forgets all
    /// others.
    fn follow_on(&mut self, followed: &[Arc<Followed>]) {
        self.positions.retain_mut(|position| {
            // The first partition keeps the stream that the task had before it had partitions.
            let is_there = |task: &&Arc<Followed>| {
                let is_same = task.tables.parts() == position.keys.parts() || position.keys.part() == 0;
                task.name == position.name && is_same
            };
            let task = followed.iter().find(is_there);
            if let Some(task) = task.filter(|_| position.keys.part() == 0) {
                position.keys = task.tables.first();
            }
            position.task = task.map_or_else(Weak::new, Arc::downgrade);
            task.is_some()
        });
    }

    /// Starts reading new tasks: from when they were added or from the first subscription, whichever was later, by the
    /// clocks of their servers.
    fn begin_new_tasks(&mut self, parts: &[(Arc<Followed>, Arc<TaskKeys>)], servers_ms: &[u64]) {
        let now = Instant::now();
        for ((task, keys), server_ms) in parts.iter().zip(servers_ms.iter().copied()) {
            if !self.positions.iter().any(|position| position.is_of(task, keys)) {
                let ago = now.duration_since(task.at.max(self.since));
                let last_id = format!("{}-0", start_ms(server_ms, ago));
                let (name, keys) = (Arc::clone(&task.name), Arc::clone(keys));
                let task = Arc::downgrade(task);
                self.positions.push(Position { name, keys, task, last_id, total: None, asked: false, has_read: false });
            }
        }
    }

    /// Finds streams that went back to an earlier id. After a failover to a server with fewer entries, new ids may be
    /// lower than the position, and would never be read. The reader then continues at the end of the stream and reports
    /// a gap. For a stream that it has just begun, it reads the count of the entry before.
    async fn find_gaps(&mut self, conn: &OwnConnection, away: &[usize]) -> Result<(), Error> {
        let key = self.channel.key;
        let mut lasts = Vec::with_capacity(self.positions.len());
        let all: Vec<_> = self.positions.iter().enumerate().collect();
        for some in all.chunks(TOGETHER) {
            let reads = some.iter().map(|(at, position)| {
                let (mut conn, is_unreachable) = (conn.clone(), away.contains(at));
                async move {
                    if is_unreachable {
                        // Its node is unreachable: a call to it would keep the others waiting.
                        return Ok(None);
                    }
                    let up_to = if position.asked { "+" } else { &position.last_id };
                    let is_alone = !conn.is_routed();
                    let last = streams::last_entry(&mut conn, &position.keys, key, up_to);
                    if is_alone {
                        return last.await.map(Some);
                    }
                    // A node that is unreachable is asked again later.
                    Ok(tokio::time::timeout(streams::NODE_PATIENCE, last).await.ok().and_then(Result::ok))
                }
            });
            lasts.extend(try_join_all(reads).await?);
        }
        for (position, last) in self.positions.iter_mut().zip(lasts) {
            let Some(last) = last else { continue };
            if !std::mem::replace(&mut position.asked, true) {
                position.total = last.as_ref().and_then(total_of);
                continue;
            }
            let Some(last) = last.filter(|last| is_before(&last.id, &position.last_id)) else { continue };
            let total = total_of(&last);
            if !position.has_read && position.total == total && total.is_some() {
                // This is the entry just before the position: the stream did not go back.
                continue;
            }
            let missed = total.unwrap_or(0).saturating_sub(position.total.unwrap_or(0)).max(1);
            tracing::warn!(task = %position.name, "the event stream went back; events may have been missed");
            (position.last_id, position.total) = (last.id, total);
            self.channel.missed(self.reader, missed);
            self.channel.source.waiters.poll_all();
        }
        Ok(())
    }

    /// Delivers the entries of a stream. Callers that wait for a job come first, since subscribers may be slow.
    async fn deliver(&mut self, at: usize, entries: Vec<Entry>) {
        let mut batch = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(position) = self.positions.get_mut(at) else { return };
            let (missed, events) = read_entry(position, entry, &self.channel.source.store.codecs);
            if self.channel.key == Key::Events {
                if missed > 0 {
                    self.channel.source.waiters.poll_all();
                }
                for event in &events {
                    if let StreamEvent::Job(event) = event {
                        self.channel.source.waiters.event_arrived(event);
                    }
                }
            }
            let wanted: Vec<T> = events.into_iter().filter_map(self.channel.pick).collect();
            batch.push((missed, wanted));
        }
        let mut sent = 0;
        self.unsent = batch.iter().map(|(missed, events)| missed + events.len() as u64).sum();
        for (missed, events) in batch {
            self.channel.missed(self.reader, missed);
            self.unsent -= missed;
            for event in events {
                self.channel.send_from(self.reader, event);
                self.unsent -= 1;
                sent += 1;
                if sent % CHUNK == 0 {
                    self.pace().await;
                }
            }
        }
    }

    /// Waits for slow subscribers, since unread events are kept longer in Redis than here. Waits at most 50 ms at a
    /// time, and not for a subscriber that makes no progress.
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

/// Returns when there is a task that is not read yet, after a short wait for more of them.
async fn new_task(source: &Source, mut added: watch::Receiver<()>, positions: &[Position]) {
    let mut layouts = source.store.layouts();
    loop {
        // Cannot fail: the senders live in `source`.
        tokio::select! {
            _ = added.changed() => {}
            _ = layouts.changed() => {}
        }
        tokio::time::sleep(GATHER).await;
        if is_any_new(source, positions) {
            return;
        }
    }
}

fn is_any_new(source: &Source, positions: &[Position]) -> bool {
    let is_new = |task: &Arc<Followed>| {
        let read = positions.iter().filter(|position| position.name == task.name);
        let read = read.filter(|position| position.keys.parts() == task.tables.parts());
        read.count() < task.tables.parts() as usize
    };
    source.followed().iter().any(is_new)
}

/// The tables of the tasks, each with its task.
fn parts_of(followed: &[Arc<Followed>]) -> Vec<(Arc<Followed>, Arc<TaskKeys>)> {
    let tables = |task: &Arc<Followed>| {
        let tables = task.tables.all();
        tables.iter().map(|keys| (Arc::clone(task), Arc::clone(keys))).collect::<Vec<_>>()
    };
    followed.iter().flat_map(tables).collect()
}

/// Reads the number of partitions of tasks if it is some seconds old: another process may have set it. A read without
/// an answer is repeated later.
async fn learn_partitions(source: &Source, conn: &OwnConnection) {
    let followed = source.followed();
    for some in followed.chunks(TOGETHER) {
        // A number above 1 never changes. Each node has its own time-out, so that none delays the others.
        let asked = some.iter().filter(|task| task.tables.parts() == 1);
        let asks = asked.map(|task| {
            let mut conn = conn.clone();
            async move { tokio::time::timeout(streams::NODE_PATIENCE, task.tables.refresh_over(&mut conn)).await }
        });
        join_all(asks).await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::engine::Store;
    use crate::backend::server::EvictionCheck;

    /// A source without tasks, so that its reader does not connect.
    pub(in crate::events) fn unreachable_source() -> Arc<Source> {
        let store = Store::open(
            "redis://127.0.0.1:1",
            &crate::backend::address::ConnectOptions::default(),
            "test",
            "test",
            EvictionCheck::Refuse,
            Duration::from_secs(10),
            crate::timings::Timings::default(),
        )
        .unwrap();
        Arc::new(Source::new(Arc::new(store)))
    }
}
