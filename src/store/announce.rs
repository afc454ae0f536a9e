//! Presence: who works, since when, and on what. Display and housekeeping only; no liveness decision reads it.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::close;
use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, Key, TaskKeys};
use super::scripts;
use super::settle::LINES;
use super::streams;
use crate::error::Error;

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
        // Listed first: who is not listed is never forgotten.
        let mut enlist = scripts::ENLIST.on_key(&keys::workers(&self.prefix));
        enlist.arg(worker).call(conn).await?;
        let mut announce = scripts::ANNOUNCE.on_key(&keys::worker(&self.prefix, worker));
        announce.arg(fields).call(conn).await.map(drop)
    }

    /// Tells that the worker has stopped: no call of it counts any more, however late it comes. What this leaves goes an
    /// hour later, with its presence.
    pub(crate) async fn close(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        tasks: &[(&str, &TaskKeys)],
    ) -> Result<(), Error> {
        // All together: a round trip may take long.
        let closes = tasks.iter().map(|(_, keys)| {
            let mut conn = conn.clone();
            async move { close::close(&mut conn, keys, worker).await }
        });
        try_join_all(closes).await?;
        let now = streams::server_time_ms(conn).await?;
        // By the names of its tasks it is forgotten, also where the server lost what it had said before.
        let names: Vec<&str> = tasks.iter().map(|(name, _)| *name).collect();
        let fields = [("stoppedAt".to_owned(), now.to_string()), ("tasks".to_owned(), names.join(" "))];
        self.announce(conn, worker, &fields).await
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
