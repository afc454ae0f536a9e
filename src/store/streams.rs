//! The event streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;

use super::connection::{Connection, OwnConnection};
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use crate::error::Error;
use crate::limits::stored_number;
use crate::times::to_ms;

/// How often streams on different servers are asked while nothing comes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How often the entries of one of several streams are halved, each time that their answer was late.
const HALVINGS: u32 = 6;

/// How long it may take to answer a small question, for one that is late with more.
const SMALL: Duration = Duration::from_millis(300);

/// How long one of several servers may take to tell what it has.
pub(crate) const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// One entry of a stream: its id, and its fields as text in order.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Entry {
    /// When it was written, ms by the clock of its server.
    pub(crate) fn at_ms(&self) -> u64 {
        self.id.split_once('-').and_then(|(ms, _)| stored_number(ms)).unwrap_or(0)
    }
}

/// Whether the node that has the events of a task answers.
pub(crate) async fn answers(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    let mut cmd = redis::cmd("XRANGE");
    // No entry is that old.
    cmd.arg(keys.get(Key::Events)).arg(1).arg(1).arg("COUNT").arg(1);
    cmd.query_async(conn).await.map_err(|e| classify("events", e))
}

/// The server's time, ms since 1970.
pub(crate) async fn server_time_ms(conn: &mut impl Connection) -> Result<u64, Error> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(conn).await.map_err(|e| classify("time", e))?;
    Ok(seconds * 1000 + micros / 1000)
}

/// The times by the clocks of the servers that have the streams of these tasks, ms since 1970.
pub(crate) async fn server_times_ms(conn: &OwnConnection, tasks: &[&TaskKeys]) -> Result<Vec<u64>, Error> {
    if !conn.is_routed() {
        return Ok(vec![server_time_ms(&mut conn.clone()).await?; tasks.len()]);
    }
    let times = tasks.iter().map(|keys| async {
        let asked = async {
            let mut conn = conn.at(keys.get(Key::Events)).await.map_err(|e| classify("time", e))?;
            server_time_ms(&mut conn).await
        };
        tokio::time::timeout(NODE_PATIENCE, asked).await.unwrap_or_else(|_| Err(Error::timed_out()))
    });
    let times = join_all(times).await;
    // The clock of a node that is away is taken to be that of another one.
    match times.iter().flatten().max().copied() {
        Some(other) => Ok(times.into_iter().map(|time| time.unwrap_or(other)).collect()),
        None => times.into_iter().collect(),
    }
}

/// Blocks until one of the streams has entries behind the id that goes with it, or `block` is over. Returns the
/// entries by the position of their stream in `after`, at most `count` of each.
pub(crate) async fn read(
    conn: &mut OwnConnection,
    apart: &mut StreamsApart,
    after: &[(&Arc<TaskKeys>, Key, &str)],
    block: Duration,
    count: usize,
) -> Result<Vec<(usize, Vec<Entry>)>, Error> {
    if conn.is_routed() {
        return apart.read(conn, after, block, count).await;
    }
    let after: Vec<_> = after.iter().map(|(keys, key, id)| (&***keys, *key, *id)).collect();
    read_together(conn, &after, Some(block), count).await
}

/// Streams on different servers, each read by itself: one whose server is away, or slow, keeps no other.
#[derive(Default)]
pub(crate) struct StreamsApart {
    under_way: FuturesUnordered<StreamRead>,
    streams: Vec<StreamApart>,
    /// Whether any of them was answered.
    pub(crate) has_answered: bool,
}

/// The position of a stream, and what it has.
type StreamRead = BoxFuture<'static, (usize, Result<Vec<Entry>, Error>)>;

/// One of them.
#[derive(Clone, Copy, Default)]
struct StreamApart {
    is_under_way: bool,
    /// How long it is let be before it is read again.
    pause: Duration,
    has_failed: bool,
    /// How often an answer was late since all was read: as often the entries are halved.
    late: u32,
    answered_at: Option<Instant>,
}

impl StreamApart {
    /// What its last read came to.
    fn has_read(&mut self, read: &Result<Vec<Entry>, Error>, wanted: usize) {
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
    /// Reads on where reads are not under way from the call before. Returns what has come by the time that anything has, when any of them is
    /// answered for the first time, or when `block` is over.
    ///
    /// # Errors
    /// Where every stream fails, or one that is there is late however little is asked of it, what that one says.
    async fn read(
        &mut self,
        conn: &OwnConnection,
        after: &[(&Arc<TaskKeys>, Key, &str)],
        block: Duration,
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>, Error> {
        self.streams.resize(after.len(), StreamApart::default());
        let (mut found, until) = (Vec::new(), Instant::now() + block);
        let mut is_first = false;
        loop {
            for (at, (stream, (keys, key, id))) in self.streams.iter_mut().zip(after).enumerate() {
                let has_come = found.iter().any(|(found, _)| *found == at);
                // Behind what has come it is read on by the next call.
                if !has_come && !std::mem::replace(&mut stream.is_under_way, true) {
                    let (of, count) = ((Arc::clone(keys), *key, (*id).to_owned()), stream.wanted(count));
                    self.under_way.push(read_later(at, stream.pause, conn.clone(), of, count));
                }
            }
            let next = if is_first || !found.is_empty() {
                // What is there already comes along.
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
                    // One that answers a small question in time needs more of it; one that does not is away, and keeps no other.
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

    /// Those whose servers were not heard from of late.
    pub(crate) fn away(&self) -> Vec<usize> {
        let is_late = |stream: &StreamApart| stream.answered_at.is_none_or(|at| at.elapsed() > NODE_PATIENCE);
        self.streams.iter().enumerate().filter(|(_, stream)| is_late(stream)).map(|(at, _)| at).collect()
    }
}

/// Reads a stream when it was let be for so long.
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

/// The same in one call; without a time it does not wait.
async fn read_together(
    conn: &mut impl Connection,
    after: &[(&TaskKeys, Key, &str)],
    block: Option<Duration>,
    count: usize,
) -> Result<Vec<(usize, Vec<Entry>)>, Error> {
    let names: Vec<&str> = after.iter().map(|(keys, key, _)| keys.get(*key)).collect();
    let ids: Vec<&str> = after.iter().map(|(_, _, id)| *id).collect();
    let mut cmd = redis::cmd("XREAD");
    cmd.arg("COUNT").arg(count);
    if let Some(block) = block {
        // Zero would mean for ever.
        cmd.arg("BLOCK").arg(to_ms(block).max(1));
    }
    cmd.arg("STREAMS").arg(&names).arg(ids);
    let reply: Value = cmd.query_async(conn).await.map_err(|e| classify("events", e))?;
    // The client's own reply type keeps fields in a map: it loses their order, and one of two with the same name.
    let mut found = Vec::new();
    for (name, entries) in pairs(reply) {
        let name = text(name);
        if let (Some(position), Value::Array(entries)) = (names.iter().position(|known| *known == name), entries) {
            found.push((position, entries.into_iter().filter_map(entry).collect()));
        }
    }
    Ok(found)
}

/// The last entry of the stream of a task up to an id, or of all for `+`; `None` when it has none, or has none any more.
pub(crate) async fn last_entry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: Key,
    up_to: &str,
) -> Result<Option<Entry>, Error> {
    let mut cmd = redis::cmd("XREVRANGE");
    cmd.arg(keys.get(key)).arg(up_to).arg("-").arg("COUNT").arg(1);
    let reply: Value = cmd.query_async(conn).await.map_err(|e| classify("events", e))?;
    let Value::Array(entries) = reply else { return Ok(None) };
    Ok(entries.into_iter().next().and_then(entry))
}

/// Entries of a stream of a task behind `after`, or with `newest` in front of it, the newest first; at most `count`.
pub(crate) async fn range(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: Key,
    after: &str,
    newest: bool,
    count: usize,
) -> Result<Vec<Entry>, Error> {
    let mut cmd = redis::cmd(if newest { "XREVRANGE" } else { "XRANGE" });
    let (start, end) = if newest { ("+", "-") } else { ("-", "+") };
    let start = if after.is_empty() { start.to_owned() } else { format!("({after}") };
    cmd.arg(keys.get(key)).arg(start).arg(end).arg("COUNT").arg(count);
    let reply: Value = cmd.query_async(conn).await.map_err(|e| classify("events", e))?;
    let Value::Array(entries) = reply else { return Ok(Vec::new()) };
    Ok(entries.into_iter().filter_map(entry).collect())
}

/// What RESP2 sends as a list of pairs, or as one flat list, and RESP3 as a map.
fn pairs(value: Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) => pairs,
        Value::Array(items) => {
            let mut pairs = Vec::with_capacity(items.len());
            let mut items = items.into_iter();
            while let Some(item) = items.next() {
                match item {
                    Value::Array(pair) => pairs.extend(<[Value; 2]>::try_from(pair).map(|[name, value]| (name, value))),
                    name => pairs.extend(items.next().map(|value| (name, value))),
                }
            }
            pairs
        }
        _ => Vec::new(),
    }
}

pub(super) fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let fields = pairs(fields).into_iter().map(|(name, value)| (text(name), text(value))).collect();
    Some(Entry { id: text(id), fields })
}

/// Text of our own scripts; what somebody else wrote is read as well as it goes.
fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        }
        Value::SimpleString(text) => text,
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn fields_keep_their_order_and_their_duplicates() {
        let fields = ["failed", "a x", "started", "b", "failed", "c y"].map(bulk).to_vec();
        let read = entry(Value::Array(vec![bulk("1-0"), Value::Array(fields)])).unwrap();
        let words: Vec<String> = read.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            (read.id.as_str(), words),
            ("1-0", ["failed=a x", "started=b", "failed=c y"].map(String::from).to_vec())
        );
    }

    #[test]
    fn both_protocols_name_the_stream_the_same_way() {
        let (name, entries) = (bulk("s"), Value::Array(Vec::new()));
        let resp2 = Value::Array(vec![Value::Array(vec![name.clone(), entries.clone()])]);
        let resp3 = Value::Map(vec![(name, entries)]);
        assert_eq!(pairs(resp2), pairs(resp3));
        assert!(pairs(Value::Nil).is_empty());
    }

    #[test]
    fn of_a_stream_whose_answers_are_late_less_is_asked_until_all_of_it_is_read() {
        let mut stream = StreamApart::default();
        let entry = || Entry { id: "1-0".to_owned(), fields: Vec::new() };
        let read = |stream: &mut StreamApart, read: Result<usize, Error>| {
            let wanted = stream.wanted(100);
            stream.has_read(&read.map(|some| (0..some).map(|_| entry()).collect()), wanted);
            stream.wanted(100)
        };
        assert_eq!([(); 8].map(|()| read(&mut stream, Err(Error::late()))), [50, 25, 12, 6, 3, 1, 1, 1]);
        assert!(stream.has_failed && stream.late > HALVINGS);
        stream.late = 2;
        assert_eq!(read(&mut stream, Err(Error::Closed)), 25, "that was not late");
        assert_eq!((read(&mut stream, Ok(25)), stream.pause), (25, Duration::ZERO), "more may be left");
        assert_eq!((read(&mut stream, Ok(24)), stream.has_failed), (100, false));
    }

    #[test]
    fn what_is_no_entry_is_skipped() {
        for value in [Value::Nil, Value::Int(1), Value::Array(vec![bulk("1-0")])] {
            assert!(entry(value).is_none());
        }
    }
}
