//! Reads several streams at once. On one server that is one blocking call; in a cluster each stream is read by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::connection::OwnConnection;
use super::keys::{Key, TaskKeys};
use super::streams::{Entry, NODE_PATIENCE, last_entry, read_together};
use crate::error::Result;

/// The pause between reads of empty streams on different servers.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How often the number of entries is halved for a stream whose answers are late.
const HALVINGS: u32 = 6;

/// How long a server that is late with a large answer may take for a small one.
const SMALL: Duration = Duration::from_millis(300);

/// Blocks until one of the streams has entries after its id, or `block` is over. Returns at most `count` entries of
/// each, with the position of their stream in `after`.
pub(crate) async fn read(
    conn: &mut OwnConnection,
    apart: &mut StreamsApart,
    after: &[(&Arc<TaskKeys>, Key, &str)],
    block: Duration,
    count: usize,
) -> Result<Vec<(usize, Vec<Entry>)>> {
    if conn.is_routed() {
        return apart.read(conn, after, block, count).await;
    }
    let after: Vec<_> = after.iter().map(|(keys, key, id)| (&***keys, *key, *id)).collect();
    read_together(conn, &after, Some(block), count).await
}

/// Streams on different servers. Each is read by itself, so that a server that is unreachable or slow delays no other.
#[derive(Default)]
pub(crate) struct StreamsApart {
    under_way: FuturesUnordered<StreamRead>,
    streams: Vec<StreamApart>,
    /// Whether any server has answered.
    pub(crate) has_answered: bool,
}

/// The position of a stream, and its entries.
type StreamRead = BoxFuture<'static, (usize, Result<Vec<Entry>>)>;

#[derive(Clone, Copy, Default)]
struct StreamApart {
    is_under_way: bool,
    /// The pause before the next read.
    pause: Duration,
    has_failed: bool,
    /// How often an answer was late since all entries were last read. The number of entries is halved as often.
    late: u32,
    answered_at: Option<Instant>,
}

impl StreamApart {
    /// Records the result of its last read.
    fn has_read(&mut self, read: &Result<Vec<Entry>>, wanted: usize) {
        self.is_under_way = false;
        self.pause = (self.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.has_failed = read.is_err();
        match read {
            Ok(entries) => {
                self.answered_at = Some(Instant::now());
                self.late = if entries.len() < wanted { 0 } else { self.late };
                self.pause = if entries.is_empty() { self.pause } else { Duration::ZERO };
            }
            Err(e) => self.late += u32::from(e.is_timeout()),
        }
    }

    fn wanted(&self, count: usize) -> usize {
        (count >> self.late.min(HALVINGS)).max(1)
    }
}

impl StreamsApart {
    /// Starts the reads that are not under way. Returns when any stream has entries, when a server answers for the
    /// first time, or when `block` is over.
    ///
    /// # Errors
    /// If every stream fails, or if a server that is up is late even for a few entries.
    async fn read(
        &mut self,
        conn: &OwnConnection,
        after: &[(&Arc<TaskKeys>, Key, &str)],
        block: Duration,
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>> {
        self.streams.resize(after.len(), StreamApart::default());
        let (mut found, until) = (Vec::new(), Instant::now() + block);
        let mut is_first = false;
        loop {
            for (at, (stream, (keys, key, id))) in self.streams.iter_mut().zip(after).enumerate() {
                let has_come = found.iter().any(|(found, _)| *found == at);
                // The caller continues after these entries, so read no more of this stream now.
                if !has_come && !std::mem::replace(&mut stream.is_under_way, true) {
                    let (of, count) = ((Arc::clone(keys), *key, (*id).to_owned()), stream.wanted(count));
                    self.under_way.push(read_later(at, stream.pause, conn.clone(), of, count));
                }
            }
            let next = if is_first || !found.is_empty() {
                // Also return the other reads that are ready.
                self.under_way.next().now_or_never().flatten()
            } else {
                tokio::time::timeout_at(until.into(), self.under_way.next()).await.ok().flatten()
            };
            let Some((at, read)) = next else { return Ok(found) };
            let (stream, name) = (&mut self.streams[at], after[at].0.get(after[at].1));
            let (had_failed, wanted) = (stream.has_failed, stream.wanted(count));
            stream.has_read(&read, wanted);
            match read {
                Ok(entries) => {
                    is_first |= !std::mem::replace(&mut self.has_answered, true);
                    if !entries.is_empty() {
                        found.push((at, entries));
                    }
                }
                Err(e) if self.streams.iter().all(|stream| stream.has_failed) => return Err(e),
                Err(e) if self.streams[at].late > HALVINGS => {
                    self.streams[at].late = HALVINGS;
                    // A server that answers a small question is up, and the caller gives it more time. Else it is unreachable.
                    let (keys, key, _) = after[at];
                    let mut conn = conn.clone();
                    let asked = last_entry(&mut conn, keys, key, "+");
                    if tokio::time::timeout(SMALL, asked).await.is_ok_and(|answer| answer.is_ok()) {
                        return Err(e);
                    }
                }
                Err(e) if !had_failed => {
                    tracing::warn!(stream = name, error = %e.chain(), "the events of a task cannot be read now; those of others can");
                }
                Err(_) => {}
            }
        }
    }

    /// The streams whose servers have not answered for a while.
    pub(crate) fn away(&self) -> Vec<usize> {
        let is_late = |stream: &StreamApart| stream.answered_at.is_none_or(|at| at.elapsed() > NODE_PATIENCE);
        self.streams.iter().enumerate().filter(|(_, stream)| is_late(stream)).map(|(at, _)| at).collect()
    }
}

/// Reads a stream after a pause.
fn read_later(
    at: usize,
    pause: Duration,
    mut conn: OwnConnection,
    (keys, key, id): (Arc<TaskKeys>, Key, String),
    count: usize,
) -> StreamRead {
    async move {
        tokio::time::sleep(pause).await;
        let read = read_together(&mut conn, &[(&*keys, key, &*id)], None, count).await;
        (at, read.map(|found| found.into_iter().flat_map(|(_, entries)| entries).collect()))
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_stream_with_late_replies_is_read_in_smaller_parts() {
        let mut stream = StreamApart::default();
        let entry = || Entry { id: "1-0".to_owned(), fields: Vec::new() };
        let read = |stream: &mut StreamApart, read: Result<usize>| {
            let wanted = stream.wanted(100);
            stream.has_read(&read.map(|some| (0..some).map(|_| entry()).collect()), wanted);
            stream.wanted(100)
        };
        assert_eq!([(); 8].map(|()| read(&mut stream, Err(Error::late()))), [50, 25, 12, 6, 3, 1, 1, 1]);
        assert!(stream.has_failed && stream.late > HALVINGS);
        stream.late = 2;
        assert_eq!(read(&mut stream, Err(Error::Closed)), 25, "the reply was not late");
        assert_eq!((read(&mut stream, Ok(25)), stream.pause), (25, Duration::ZERO), "more may be left");
        assert_eq!((read(&mut stream, Ok(24)), stream.has_failed), (100, false));
    }
}
