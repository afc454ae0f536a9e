//! Event streams: their entries, ranges of them, the search for a job (`lua/history.lua`), and the clocks of their servers.

use std::time::Duration;

use redis::Value;

use super::classify::classify;
use super::connection::{Connection, OwnConnection};
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::{Error, Result};
use crate::join::join_all;
use crate::limits::stored_number;
use crate::unix_time::to_ms;

/// How long one of several servers may take to answer.
pub(crate) const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// One entry of a stream: its id, and its fields in order.
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

/// Checks that the node with the events of a task answers.
pub(crate) async fn answers(conn: &mut impl Connection, keys: &TaskKeys) -> Result<()> {
    // No entry is that old, so the answer is empty.
    redis::cmd("XRANGE").arg(keys.get(Key::Events)).arg(1).arg(1).arg("COUNT").arg(1).call(conn, "events").await
}

/// The server's time, ms since 1970.
pub(crate) async fn server_time_ms(conn: &mut impl Connection) -> Result<u64> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").call(conn, "time").await?;
    Ok(seconds * 1000 + micros / 1000)
}

/// The clocks of the servers with the streams of these tasks, ms since 1970.
pub(crate) async fn server_times_ms(conn: &OwnConnection, tasks: &[&TaskKeys]) -> Result<Vec<u64>> {
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
    // For a node that is unreachable, use the clock of another one.
    match times.iter().flatten().max().copied() {
        Some(other) => Ok(times.into_iter().map(|time| time.unwrap_or(other)).collect()),
        None => times.into_iter().collect(),
    }
}

/// Reads streams of one server in one call. Without `block`, it does not wait.
pub(super) async fn read_together(
    conn: &mut impl Connection,
    after: &[(&TaskKeys, Key, &str)],
    block: Option<Duration>,
    count: usize,
) -> Result<Vec<(usize, Vec<Entry>)>> {
    let names: Vec<&str> = after.iter().map(|(keys, key, _)| keys.get(*key)).collect();
    let ids: Vec<&str> = after.iter().map(|(_, _, id)| *id).collect();
    let mut cmd = redis::cmd("XREAD");
    cmd.arg("COUNT").arg(count);
    if let Some(block) = block {
        // Zero would block forever.
        cmd.arg("BLOCK").arg(to_ms(block).max(1));
    }
    cmd.arg("STREAMS").arg(&names).arg(ids);
    let reply: Value = cmd.call(conn, "events").await?;
    // The client's own reply type keeps fields in a map, which loses their order and duplicates.
    let mut found = Vec::new();
    for (name, entries) in pairs(reply) {
        let name = text(name);
        if let (Some(position), Value::Array(entries)) = (names.iter().position(|known| *known == name), entries) {
            found.push((position, entries.into_iter().filter_map(entry).collect()));
        }
    }
    Ok(found)
}

/// The last entry of a stream up to an id, or of the whole stream for `+`; `None` if there is none.
pub(crate) async fn last_entry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: Key,
    up_to: &str,
) -> Result<Option<Entry>> {
    let reply: Value =
        redis::cmd("XREVRANGE").arg(keys.get(key)).arg(up_to).arg("-").arg("COUNT").arg(1).call(conn, "events").await?;
    let Value::Array(entries) = reply else { return Ok(None) };
    Ok(entries.into_iter().next().and_then(entry))
}

/// At most `count` entries of a stream after `after`; with `newest` those before it, newest first.
pub(crate) async fn range(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: Key,
    after: &str,
    newest: bool,
    count: usize,
) -> Result<Vec<Entry>> {
    let mut cmd = redis::cmd(if newest { "XREVRANGE" } else { "XRANGE" });
    let (start, end) = if newest { ("+", "-") } else { ("-", "+") };
    let start = if after.is_empty() { start.to_owned() } else { format!("({after}") };
    cmd.arg(keys.get(key)).arg(start).arg(end).arg("COUNT").arg(count);
    let reply: Value = cmd.call(conn, "events").await?;
    let Value::Array(entries) = reply else { return Ok(Vec::new()) };
    Ok(entries.into_iter().filter_map(entry).collect())
}

/// Reads up to `look` entries after `after`, up to `until`. Returns those that contain the word, and the id of the last
/// entry that was read; `None` at the end.
pub(crate) async fn history(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    stream: Key,
    word: &str,
    (after, until): (&str, &str),
    look: usize,
) -> Result<(Vec<Entry>, Option<String>)> {
    let mut reply =
        scripts::HISTORY.on_place(keys, stream).arg(word).arg(after).arg(until).arg(look).answer(conn).await?;
    let Text(last) = reply.next()?;
    let found: Vec<Value> = reply.next()?;
    Ok((found.into_iter().filter_map(entry).collect(), Some(last).filter(|last| !last.is_empty())))
}

/// Pairs. RESP2 sends a list of pairs or one flat list, RESP3 a map.
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

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let fields = pairs(fields).into_iter().map(|(name, value)| (text(name), text(value))).collect();
    Some(Entry { id: text(id), fields })
}

/// Text. Bytes that are not UTF-8 are replaced.
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
    fn malformed_entries_are_skipped() {
        for value in [Value::Nil, Value::Int(1), Value::Array(vec![bulk("1-0")])] {
            assert!(entry(value).is_none());
        }
    }
}
