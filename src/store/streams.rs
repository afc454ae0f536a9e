//! The event streams.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::Value;

use super::connection::{Connection, OwnConnection};
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use crate::error::Error;
use crate::times::to_ms;

/// How often streams on different servers are asked while nothing comes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// One entry of a stream: its id, and its fields as text in order.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) fields: Vec<(String, String)>,
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
        let mut conn = conn.at(keys.get(Key::Events)).await.map_err(|e| classify("time", e))?;
        server_time_ms(&mut conn).await
    });
    try_join_all(times).await
}

/// Blocks until one of the streams has entries behind the id that goes with it, or `block` is over. Returns the
/// entries by the position of their stream in `after`, at most `count` of each.
pub(crate) async fn read(
    conn: &mut OwnConnection,
    after: &[(&TaskKeys, Key, &str)],
    block: Duration,
    count: usize,
) -> Result<Vec<(usize, Vec<Entry>)>, Error> {
    if !conn.is_routed() {
        return read_together(conn, after, Some(block), count).await;
    }
    // Streams on different servers: each is asked for what it has, again and again.
    let (until, mut pause) = (Instant::now() + block, SHORTEST_PAUSE);
    loop {
        let reads = after.iter().enumerate().map(|(at, stream)| {
            let mut conn = conn.clone();
            async move {
                let found = read_together(&mut conn, std::slice::from_ref(stream), None, count).await?;
                Ok::<_, Error>(found.into_iter().map(move |(_, entries)| (at, entries)))
            }
        });
        let found: Vec<_> = try_join_all(reads).await?.into_iter().flatten().collect();
        if !found.is_empty() || Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
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
    fn what_is_no_entry_is_skipped() {
        for value in [Value::Nil, Value::Int(1), Value::Array(vec![bulk("1-0")])] {
            assert!(entry(value).is_none());
        }
    }
}
