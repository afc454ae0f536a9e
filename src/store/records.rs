//! Records of calls and counters of a task, for an audit.

use super::connection::Connection;
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, Key, TaskKeys};
use super::reply::Text;
use super::settle::LINES;
use crate::error::Error;

/// The fields of `meta` that scripts read as numbers.
pub(crate) const COUNTERS: [&str; 13] = [
    "epoch",
    "interval",
    "ask",
    "fence",
    "events",
    "stalls",
    "in",
    "out",
    "outFailed",
    "ghosts",
    "largest",
    "failedSinceCompleted",
    "brokenOffSinceCompleted",
];

/// Whether a script reads a counter as what it is: a whole number below 2^53, as a double holds it.
pub(crate) fn is_counter(value: &str) -> bool {
    value.parse::<u64>().is_ok_and(|number| number < 1 << 53)
}

/// The worker whose record a field of `calls` is.
pub(crate) fn worker_of(record: &str) -> &str {
    let own = LINES.iter().filter(|line| !line.is_empty()).find_map(|line| record.strip_suffix(*line));
    own.unwrap_or(record)
}

/// Removes the record, or with `preview` only looks for it. Returns whether it is there.
pub(crate) async fn drop_record(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    record: &str,
    preview: bool,
) -> Result<bool, Error> {
    let mut cmd = redis::cmd(if preview { "HEXISTS" } else { "HDEL" });
    cmd.arg(keys.get(Key::Calls)).arg(record);
    let found: u64 = cmd.query_async(conn).await.map_err(|e| classify("calls", e))?;
    Ok(found > 0)
}

/// Removes a counter of the task that is not a whole number below 2^53, or with `preview` only looks at it. Returns whether it was one.
pub(crate) async fn drop_bad_counter(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    field: &str,
    preview: bool,
) -> Result<bool, Error> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.get(Key::Meta)).arg(field);
    let value: Option<Text> = get.query_async(conn).await.map_err(|e| classify("meta", e))?;
    let is_bad = value.is_some_and(|Text(value)| !is_counter(&value));
    if is_bad && !preview {
        let mut del = redis::cmd("HDEL");
        del.arg(keys.get(Key::Meta)).arg(field).query_async::<()>(conn).await.map_err(|e| classify("meta", e))?;
    }
    Ok(is_bad)
}

impl Store {
    /// Whether a worker is listed among those that were seen in the last hour.
    pub(crate) async fn is_listed(&self, conn: &mut impl Connection, worker: &str) -> Result<bool, Error> {
        let mut cmd = redis::cmd("ZSCORE");
        cmd.arg(keys::workers(&self.prefix)).arg(worker);
        let seen: Option<f64> = cmd.query_async(conn).await.map_err(|e| classify("presence", e))?;
        Ok(seen.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_its_worker_whatever_line_it_is_of() {
        for record in ["host-7-00000000", "host-7-00000000/2", "host-7-00000000/3"] {
            assert_eq!(worker_of(record), "host-7-00000000");
        }
    }
}
