//! The log of calls of a private server.

use redis::aio::MultiplexedConnection;

const LENGTH: u32 = 20_000;

/// A logged call: its words, and the name of its connection.
pub type LoggedCall = (Vec<String>, String);

/// Makes the server log every call from now on.
pub async fn log_calls(conn: &mut MultiplexedConnection) {
    for (name, value) in [("slowlog-log-slower-than", 0), ("slowlog-max-len", LENGTH)] {
        let mut set = redis::cmd("CONFIG");
        let () = set.arg("SET").arg(name).arg(value).query_async(conn).await.unwrap();
    }
}

/// The last calls of this script, by its SHA1; the newest first.
pub async fn calls_of(conn: &mut MultiplexedConnection, script: &str) -> Vec<LoggedCall> {
    // Number, time, duration, words, address and name of the connection.
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let entries: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(LENGTH).query_async(conn).await.unwrap();
    let calls = entries.into_iter().map(|(.., words, _, connection)| (words, connection));
    calls.filter(|(words, _)| words.get(1).is_some_and(|sha| sha == script)).collect()
}
