use redis::AsyncCommands;
use redis::aio::ConnectionLike;
use redis::streams::StreamRangeReply;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Every key that starts with `prefix` and all that it holds, in a form to compare and to read.
///
/// Strings are quoted and bytes outside ASCII escaped. Hashes and sets are sorted; lists, sorted sets and streams keep
/// their order. A key that expires says so, without the time. The dump is not atomic: take it when nothing is written.
pub async fn dump<C: ConnectionLike + Send + Sync>(conn: &mut C, prefix: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let (next, page): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", escape_glob(prefix)))
            .arg("COUNT")
            .arg(1000)
            .query_async(conn)
            .await
            .unwrap();
        keys.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let mut dump = BTreeMap::new();
    for key in keys {
        let mut content = content(conn, &key).await;
        if conn.pttl::<_, i64>(&key).await.unwrap() >= 0 {
            content.push_str(" (expires)");
        }
        dump.insert(key.escape_ascii().to_string(), content);
    }
    dump
}

async fn content<C: ConnectionLike + Send + Sync>(conn: &mut C, key: &[u8]) -> String {
    let kind: String = redis::cmd("TYPE").arg(key).query_async(conn).await.unwrap();
    match kind.as_str() {
        "string" => {
            let value: Vec<u8> = conn.get(key).await.unwrap();
            format!("string {}", quoted(&value))
        }
        "hash" => {
            let fields: BTreeMap<Vec<u8>, Vec<u8>> = conn.hgetall(key).await.unwrap();
            format!("hash {{{}}}", pairs(&fields))
        }
        "set" => {
            let members: BTreeSet<Vec<u8>> = conn.smembers(key).await.unwrap();
            format!("set {{{}}}", list(&members))
        }
        "zset" => {
            // Scores stay text: the client's own floats would print 1e14 in their way, not in that of Redis.
            let members: Vec<(Vec<u8>, String)> =
                redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").query_async(conn).await.unwrap();
            let members = members.iter().map(|(member, score)| format!("{}: {score}", quoted(member)));
            format!("zset [{}]", members.collect::<Vec<_>>().join(", "))
        }
        "list" => {
            let items: Vec<Vec<u8>> = conn.lrange(key, 0, -1).await.unwrap();
            format!("list [{}]", list(&items))
        }
        "stream" => {
            let reply: StreamRangeReply = conn.xrange_all(key).await.unwrap();
            let mut text = "stream [".to_owned();
            for (index, entry) in reply.ids.iter().enumerate() {
                let fields = entry.map.iter().map(|(name, value)| {
                    (name.as_bytes().to_vec(), redis::from_redis_value_ref::<Vec<u8>>(value).unwrap())
                });
                let comma = if index == 0 { "" } else { ", " };
                write!(text, "{comma}{} {{{}}}", entry.id, pairs(&fields.collect())).unwrap();
            }
            text + "]"
        }
        // The key may have gone since the scan.
        "none" => "none".to_owned(),
        other => panic!("{} has the type {other}, which dump() cannot read", key.escape_ascii()),
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn list<'a>(items: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
    items.into_iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")
}

fn pairs(fields: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}: {}", quoted(name), quoted(value)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Task names stand in braces, which mean nothing in a glob, but a prefix may hold the characters that do.
fn escape_glob(prefix: &str) -> String {
    let mut escaped = String::new();
    for character in prefix.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
