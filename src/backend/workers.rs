//! The lists of workers: their members, their presence, and the removal of those that are gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::classify::classify;
use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys::{self, Key};
use super::reply::Text;
use super::settle::LINES;
use super::streams::server_time_ms;
use crate::error::Error;
use crate::limits::stored_score;
use crate::options::retention::LimitMs;

/// How long after its last sign of life the records of a worker's calls are kept.
const KEEP: Duration = Duration::from_secs(3600);

/// The same for workers that exceed the limit.
const KEEP_EXCESS: Duration = Duration::from_secs(300);

/// The most workers that one call moves to `gone` or forgets.
const FORGOTTEN: u64 = 100;

/// A worker writes its presence every 5 s. After three missed writes it may be gone.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(15);

impl Store {
    /// The listed workers, each with when it was last seen, ms: live ones, then silent ones, then those that are gone.
    /// `most` bounds each group; the latest come first.
    pub(crate) async fn workers(
        &self,
        conn: &mut OwnConnection,
        now_ms: u64,
        most: [usize; 3],
    ) -> Result<Vec<(String, u64)>, Error> {
        let (workers, gone) = (keys::workers(&self.prefix), keys::dead_workers(&self.prefix));
        let since_ms = now_ms.saturating_sub(SILENT_AFTER.as_millis() as u64);
        let mut count = redis::cmd("ZCOUNT");
        count.arg(&workers).arg(since_ms).arg("+inf");
        let seen: usize = count.query_async(conn).await.map_err(|e| classify("presence", e))?;
        let (mut found, mut known) = (Vec::new(), HashSet::new());
        let pages = [(&workers, 0, most[0].min(seen)), (&workers, seen, most[1]), (&gone, 0, most[2])];
        for (key, from, most) in pages.into_iter().filter(|(.., most)| *most > 0) {
            let mut cmd = redis::cmd("ZREVRANGE");
            cmd.arg(key).arg(from).arg(from + most - 1).arg("WITHSCORES");
            let page: Vec<(Text, f64)> = match cmd.query_async(conn).await.map_err(|e| classify("presence", e)) {
                // In a cluster this list is on its own node. If that is unreachable, live workers are still returned.
                Err(e) if *key == gone && conn.is_routed() && e.is_outage() => Vec::new(),
                page => page?,
            };
            let page = page.into_iter().map(|(Text(worker), seen)| (worker, stored_score(seen)));
            found.extend(page.filter(|(worker, _)| known.insert(worker.clone())));
        }
        Ok(found)
    }

    /// The workers of one boot of a host that were seen in about the last hour, latest first, at most `most`.
    pub(crate) async fn of_boot(
        &self,
        conn: &mut impl Connection,
        boot_id: &str,
        most: usize,
    ) -> Result<Vec<String>, Error> {
        let mut cmd = redis::cmd("ZREVRANGE");
        cmd.arg(keys::boot(&self.prefix, boot_id)).arg(0).arg(most.saturating_sub(1));
        let found: Vec<Text> = cmd.query_async(conn).await.map_err(|e| classify("presence", e))?;
        Ok(found.into_iter().map(|Text(worker)| worker).collect())
    }

    /// When a worker was last seen, ms, according to the lists; `None` if it is in none.
    pub(crate) async fn last_seen(&self, conn: &mut impl Connection, worker: &str) -> Result<Option<u64>, Error> {
        let mut seen = None;
        for list in [keys::workers(&self.prefix), keys::dead_workers(&self.prefix)] {
            seen = seen.max(seen_in(conn, &list, worker).await?);
        }
        Ok(seen)
    }

    /// Whether a worker is in the list of those that were seen in the last hour.
    pub(crate) async fn is_listed(&self, conn: &mut impl Connection, worker: &str) -> Result<bool, Error> {
        Ok(seen_in(conn, &keys::workers(&self.prefix), worker).await?.is_some())
    }

    /// The last presence of a worker; empty if none is kept.
    pub(crate) async fn presence(
        &self,
        conn: &mut impl Connection,
        worker: &str,
    ) -> Result<HashMap<String, String>, Error> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(keys::worker(&self.prefix, worker));
        let fields: Vec<(Text, Text)> = cmd.query_async(conn).await.map_err(|e| classify("presence", e))?;
        Ok(fields.into_iter().map(|(Text(name), Text(value))| (name, value)).collect())
    }

    /// Workers that were not seen for an hour, and the oldest that exceed `most`. Bounded per call.
    pub(crate) async fn long_gone(&self, conn: &mut impl Connection, most: Option<u64>) -> Result<Vec<String>, Error> {
        let workers = keys::workers(&self.prefix);
        let gone = self.unseen_since(conn, &workers, KEEP).await?;
        let Some(most) = most else { return Ok(gone) };
        let excess = self.silent(conn).await?.saturating_sub(most).min(FORGOTTEN);
        if excess <= gone.len() as u64 {
            return Ok(gone);
        }
        let mut oldest = redis::cmd("ZRANGE");
        oldest.arg(&workers).arg(0).arg(excess - 1);
        oldest.query_async(conn).await.map_err(|e| classify("presence", e))
    }

    /// How many listed workers were not seen for some minutes.
    async fn silent(&self, conn: &mut impl Connection) -> Result<u64, Error> {
        let before = server_time_ms(conn).await?.saturating_sub(KEEP_EXCESS.as_millis() as u64);
        let mut count = redis::cmd("ZCOUNT");
        count.arg(keys::workers(&self.prefix)).arg("-inf").arg(before);
        count.query_async(conn).await.map_err(|e| classify("presence", e))
    }

    /// Removes the records of the last calls of a worker that is gone, and keeps only its presence. Each step may be
    /// repeated.
    pub(crate) async fn park(&self, conn: &mut OwnConnection, worker: &str) -> Result<(), Error> {
        let classify = |e| classify("presence", e);
        let (workers, gone) = (keys::workers(&self.prefix), keys::dead_workers(&self.prefix));
        let mut seen = redis::cmd("ZSCORE");
        let seen: Option<f64> = seen.arg(&workers).arg(worker).query_async(conn).await.map_err(classify)?;
        // Another worker has already done it.
        let Some(seen) = seen else { return Ok(()) };
        let mut said = redis::cmd("HMGET");
        said.arg(keys::worker(&self.prefix, worker)).arg("tasks").arg("bootId");
        let (tasks, boot_id): (Option<String>, Option<String>) = said.query_async(conn).await.map_err(classify)?;
        for task in tasks.iter().flat_map(|names| names.split_whitespace()) {
            // Use this connection: the keeper's runtime has no other.
            let tables = self.tables(task);
            match tables.refresh_over(conn).await {
                Err(e) if e.is_outage() => return Err(e),
                // A key with a wrong type prevents the read: use the known tables.
                _ => {}
            }
            for keys in tables.all().iter() {
                let lines = LINES.map(|line| format!("{worker}{line}"));
                let mut records = redis::cmd("HDEL");
                records.arg(keys.get(Key::Replies)).arg(&lines);
                records.query_async::<()>(conn).await.map_err(classify)?;
            }
        }
        if let Some(boot_id) = boot_id {
            let mut leave = redis::cmd("ZREM");
            leave.arg(keys::boot(&self.prefix, &boot_id)).arg(worker);
            leave.query_async::<()>(conn).await.map_err(classify)?;
        }
        // Keep this order: the presence of a worker that is in neither list would be kept forever.
        let mut add = redis::cmd("ZADD");
        add.arg(&gone).arg(stored_score(seen)).arg(worker);
        add.query_async::<()>(conn).await.map_err(classify)?;
        redis::cmd("ZREM").arg(&workers).arg(worker).query_async(conn).await.map_err(classify)
    }

    /// Removes the presence of workers that have been gone for too long, or are too many. Bounded per call. Returns how many.
    pub(crate) async fn forget_gone(&self, conn: &mut OwnConnection, keep: LimitMs) -> Result<usize, Error> {
        let classify = |e| classify("presence", e);
        let gone = keys::dead_workers(&self.prefix);
        let mut forgotten = match keep.max_age_ms {
            Some(age) => self.unseen_since(conn, &gone, Duration::from_millis(age)).await?,
            None => Vec::new(),
        };
        if let Some(most) = keep.max_count {
            let count: u64 = redis::cmd("ZCARD").arg(&gone).query_async(conn).await.map_err(classify)?;
            let spare = (count + self.silent(conn).await?).saturating_sub(most).min(count).min(FORGOTTEN);
            if spare > forgotten.len() as u64 {
                let mut oldest = redis::cmd("ZRANGE");
                oldest.arg(&gone).arg(0).arg(spare - 1);
                forgotten = oldest.query_async(conn).await.map_err(classify)?;
            }
        }
        for worker in &forgotten {
            // A worker that came back, for example after a long SIGSTOP, keeps its presence.
            let mut seen = redis::cmd("ZSCORE");
            seen.arg(keys::workers(&self.prefix)).arg(worker);
            if seen.query_async::<Option<f64>>(conn).await.map_err(classify)?.is_none() {
                let mut del = redis::cmd("DEL");
                del.arg(keys::worker(&self.prefix, worker)).query_async::<()>(conn).await.map_err(classify)?;
            }
            redis::cmd("ZREM").arg(&gone).arg(worker).query_async::<()>(conn).await.map_err(classify)?;
        }
        Ok(forgotten.len())
    }

    async fn unseen_since(&self, conn: &mut impl Connection, key: &str, time: Duration) -> Result<Vec<String>, Error> {
        let before = server_time_ms(conn).await?.saturating_sub(time.as_millis() as u64);
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(key).arg("-inf").arg(before).arg("LIMIT").arg(0).arg(FORGOTTEN);
        cmd.query_async(conn).await.map_err(|e| classify("presence", e))
    }
}

async fn seen_in(conn: &mut impl Connection, list: &str, worker: &str) -> Result<Option<u64>, Error> {
    let seen: Option<f64> =
        redis::cmd("ZSCORE").arg(list).arg(worker).query_async(conn).await.map_err(|e| classify("presence", e))?;
    Ok(seen.map(stored_score))
}
