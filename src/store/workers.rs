//! Presence: who works, since when, and on what. Display and housekeeping only; no liveness decision reads it.

use std::time::Duration;

use super::jobs::LINES;
use super::{Connection, Key, Store, keys, streams};
use crate::error::{Error, classify};

/// How long after its last beat a worker's presence, and the records of its calls, are kept.
const KEEP: Duration = Duration::from_secs(3600);

impl Store {
    /// Tells that the worker is there, with what it says of itself.
    pub(crate) async fn announce(
        &self,
        conn: &mut impl Connection,
        worker: &str,
        fields: &[(String, String)],
    ) -> Result<(), Error> {
        let now = streams::server_time_ms(conn).await?;
        let key = keys::worker(&self.prefix, worker);
        let mut pipe = redis::pipe();
        pipe.cmd("HSET").arg(&key).arg(fields).arg("lastSeenAt").arg(now).ignore();
        pipe.cmd("ZADD").arg(keys::workers(&self.prefix)).arg(now).arg(worker).ignore();
        pipe.query_async(conn).await.map_err(|e| classify("presence", e))
    }

    /// Forgets a worker: its presence, and the records of its last calls on each task that it worked.
    pub(crate) async fn forget(&self, conn: &mut impl Connection, worker: &str) -> Result<(), Error> {
        let classify = |e| classify("presence", e);
        let key = keys::worker(&self.prefix, worker);
        let tasks: Option<String> =
            redis::cmd("HGET").arg(&key).arg("tasks").query_async(conn).await.map_err(classify)?;
        let mut pipe = redis::pipe();
        for task in tasks.iter().flat_map(|names| names.split_whitespace()) {
            let lines = LINES.map(|line| format!("{worker}{line}"));
            pipe.cmd("HDEL").arg(self.task_keys(task).get(Key::Calls)).arg(&lines).ignore();
        }
        pipe.cmd("DEL").arg(&key).ignore();
        pipe.cmd("ZREM").arg(keys::workers(&self.prefix)).arg(worker).ignore();
        pipe.query_async(conn).await.map_err(classify)
    }

    /// Workers that were not seen for an hour, a bounded number of them.
    pub(crate) async fn long_gone(&self, conn: &mut impl Connection) -> Result<Vec<String>, Error> {
        let before = streams::server_time_ms(conn).await?.saturating_sub(KEEP.as_millis() as u64);
        redis::cmd("ZRANGEBYSCORE")
            .arg(keys::workers(&self.prefix))
            .arg("-inf")
            .arg(before)
            .arg("LIMIT")
            .arg(0)
            .arg(100)
            .query_async(conn)
            .await
            .map_err(|e| classify("presence", e))
    }
}
