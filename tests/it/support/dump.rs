use redis::aio::ConnectionLike;
use redis::{FromRedisValue, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Every key that starts with `prefix` and its contents, in a form to compare and to read.
///
/// Strings are quoted and bytes outside ASCII escaped. Hashes and sets are sorted; lists, sorted sets and streams keep
/// their order. A key that expires says so, without the time.
pub async fn dump<C: ConnectionLike + Send + Sync>(conn: &mut C, prefix: &str) -> BTreeMap<String, String> {
    let pattern = format!("{}*", escape_glob(prefix));
    // One call for everything: tests of scripts make thousands of dumps.
    shown(redis::cmd("EVAL").arg(READ_ALL).arg(0).arg(pattern).query_async(conn).await.unwrap())
}

/// The same for the reply of [`READ_ALL`].
pub fn shown(held: Vec<(Vec<u8>, String, i64, Value)>) -> BTreeMap<String, String> {
    let shown = held.into_iter().map(|(key, kind, expires, held)| {
        let key = key.escape_ascii().to_string();
        let content = content(&key, &kind, held);
        (key, if expires >= 0 { content + " (expires)" } else { content })
    });
    shown.collect()
}

/// Each of the keys that exists, or that matches the argument: its name, type, remaining time to live, and contents.
pub const READ_ALL: &str = "
local readers = {
  string = { 'GET' }, hash = { 'HGETALL' }, set = { 'SMEMBERS' }, list = { 'LRANGE', 0, -1 },
  zset = { 'ZRANGE', 0, -1, 'WITHSCORES' }, stream = { 'XRANGE', '-', '+' },
}
local found = {}
for _, key in ipairs(ARGV[1] and redis.call('KEYS', ARGV[1]) or KEYS) do
  local kind = redis.call('TYPE', key).ok
  local reader = readers[kind]
  local held = reader and redis.call(reader[1], key, unpack(reader, 2))
  if reader then found[#found + 1] = { key, kind, redis.call('PTTL', key), held } end
end
return found";

fn content(key: &str, kind: &str, held: Value) -> String {
    // Scores stay text: the client would format 1e14 differently from Redis.
    match kind {
        "string" => format!("string {}", quoted(&read::<Vec<u8>>(held))),
        "hash" => format!("hash {{{}}}", pairs(&read(held))),
        "set" => format!("set {{{}}}", list(&read::<BTreeSet<Vec<u8>>>(held))),
        "zset" => {
            let members: Vec<(Vec<u8>, String)> = read(held);
            let members = members.iter().map(|(member, score)| format!("{}: {score}", quoted(member)));
            format!("zset [{}]", members.collect::<Vec<_>>().join(", "))
        }
        "list" => format!("list [{}]", list(&read::<Vec<Vec<u8>>>(held))),
        "stream" => {
            let entries: Vec<(String, Fields)> = read(held);
            let entries = entries.iter().map(|(id, fields)| format!("{id} {{{}}}", pairs(fields)));
            format!("stream [{}]", entries.collect::<Vec<_>>().join(", "))
        }
        other => panic!("{key} has the type {other}, which dump() cannot read"),
    }
}

/// The fields of a hash, or of an entry of a stream.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

fn read<T: FromRedisValue>(held: Value) -> T {
    redis::from_redis_value(held).unwrap()
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn list<'a>(items: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
    items.into_iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")
}

fn pairs(fields: &Fields) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}: {}", quoted(name), quoted(value)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Task names are in braces, which mean nothing in a glob, but a prefix may contain the special characters.
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
