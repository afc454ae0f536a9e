//! The lists of workers: their members, their presence, and the removal of those that are gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redis::Cmd;

use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys::{self, Key};
use super::reply::{PlainCall, Text};
use super::settle::SEQUENCES;
use super::streams::server_time_ms;
use crate::error::Result;
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
    ) -> Result<Vec<(String, u64)>> {
        let (workers, gone) = (keys::workers(&self.prefix), keys::dead_workers(&self.prefix));
        let since_ms = now_ms.saturating_sub(SILENT_AFTER.as_millis() as u64);
        let seen: usize = redis::cmd("ZCOUNT").arg(&workers).arg(since_ms).arg("+inf").call(conn, "presence").await?;
        let (mut found, mut known) = (Vec::new(), HashSet::new());
        let pages = [(&workers, 0, most[0].min(seen)), (&workers, seen, most[1]), (&gone, 0, most[2])];
        for (key, from, most) in pages.into_iter().filter(|(.., most)| *most > 0) {
            let mut range = redis::cmd("ZREVRANGE");
            range.arg(key).arg(from).arg(from + most - 1).arg("WITHSCORES");
            let page: Vec<(Text, f64)> = match range.call(conn, "presence").await {
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
    pub(crate) async fn of_boot(&self, conn: &mut impl Connection, boot_id: &str, most: usize) -> Result<Vec<String>> {
        let (key, last) = (keys::boot(&self.prefix, boot_id), most.saturating_sub(1));
        let found: Vec<Text> = redis::cmd("ZREVRANGE").arg(key).arg(0).arg(last).call(conn, "presence").await?;
        Ok(found.into_iter().map(|Text(worker)| worker).collect())
    }

    /// When a worker was last seen, ms, according to the lists; `None` if it is in none.
    pub(crate) async fn last_seen(&self, conn: &mut impl Connection, worker: &str) -> Result<Option<u64>> {
        let mut seen = None;
        for list in [keys::workers(&self.prefix), keys::dead_workers(&self.prefix)] {
            seen = seen.max(seen_in(conn, &list, worker).await?);
        }
        Ok(seen)
    }

    /// Whether a worker is in the list of those that were seen in the last hour.
    pub(crate) async fn is_listed(&self, conn: &mut impl Connection, worker: &str) -> Result<bool> {
        Ok(seen_in(conn, &keys::workers(&self.prefix), worker).await?.is_some())
    }

    /// The last presence of a worker; empty if none is kept.
    pub(crate) async fn presence(&self, conn: &mut impl Connection, worker: &str) -> Result<HashMap<String, String>> {
        let fields: Vec<(Text, Text)> =
            redis::cmd("HGETALL").arg(keys::worker(&self.prefix, worker)).call(conn, "presence").await?;
        Ok(fields.into_iter().map(|(Text(name), Text(value))| (name, value)).collect())
    }

    /// Workers that were not seen for an hour, and the oldest that exceed `most`. Bounded per call.
    pub(crate) async fn long_gone(&self, conn: &mut impl Connection, most: Option<u64>) -> Result<Vec<String>> {
        let workers = keys::workers(&self.prefix);
        let gone = self.unseen_since(conn, &workers, KEEP).await?;
        let Some(most) = most else { return Ok(gone) };
        let excess = self.silent(conn).await?.saturating_sub(most).min(FORGOTTEN);
        if excess <= gone.len() as u64 {
            return Ok(gone);
        }
        redis::cmd("ZRANGE").arg(&workers).arg(0).arg(excess - 1).call(conn, "presence").await
    }

    /// How many listed workers were not seen for some minutes.
    async fn silent(&self, conn: &mut impl Connection) -> Result<u64> {
        let before = server_time_ms(conn).await?.saturating_sub(KEEP_EXCESS.as_millis() as u64);
        redis::cmd("ZCOUNT").arg(keys::workers(&self.prefix)).arg("-inf").arg(before).call(conn, "presence").await
    }

    /// Removes the records of the last calls of a worker that is gone, and keeps only its presence. Each step may be
    /// repeated.
    pub(crate) async fn park(&self, conn: &mut OwnConnection, worker: &str) -> Result<()> {
        let (workers, gone) = (keys::workers(&self.prefix), keys::dead_workers(&self.prefix));
        let seen: Option<f64> = redis::cmd("ZSCORE").arg(&workers).arg(worker).call(conn, "presence").await?;
        // Another worker has already done it.
        let Some(seen) = seen else { return Ok(()) };
        let key = keys::worker(&self.prefix, worker);
        let (tasks, boot_id): (Option<String>, Option<String>) =
            redis::cmd("HMGET").arg(key).arg("tasks").arg("bootId").call(conn, "presence").await?;
        for task in tasks.iter().flat_map(|names| names.split_whitespace()) {
            // Use this connection: the keeper's runtime has no other.
            let tables = self.tables(task);
            match tables.refresh_over(conn).await {
                Err(e) if e.is_outage() => return Err(e),
                // A key with a wrong type prevents the read: use the known tables.
                _ => {}
            }
            for keys in tables.all().iter() {
                let sequences = SEQUENCES.map(|sequence| format!("{worker}{sequence}"));
                redis::cmd("HDEL").arg(keys.get(Key::Replies)).arg(&sequences).call::<()>(conn, "presence").await?;
            }
        }
        if let Some(boot_id) = boot_id {
            redis::cmd("ZREM").arg(keys::boot(&self.prefix, &boot_id)).arg(worker).call::<()>(conn, "presence").await?;
        }
        // Keep this order: the presence of a worker that is in neither list would be kept forever.
        redis::cmd("ZADD").arg(&gone).arg(stored_score(seen)).arg(worker).call::<()>(conn, "presence").await?;
        redis::cmd("ZREM").arg(&workers).arg(worker).call(conn, "presence").await
    }

    /// Removes the presence of workers that have been gone for too long, or are too many. Bounded per call. Returns how many.
    pub(crate) async fn forget_gone(&self, conn: &mut OwnConnection, keep: LimitMs) -> Result<usize> {
        let gone = keys::dead_workers(&self.prefix);
        let mut forgotten = match keep.max_age_ms {
            Some(age) => self.unseen_since(conn, &gone, Duration::from_millis(age)).await?,
            None => Vec::new(),
        };
        if let Some(most) = keep.max_count {
            let count: u64 = redis::cmd("ZCARD").arg(&gone).call(conn, "presence").await?;
            let spare = (count + self.silent(conn).await?).saturating_sub(most).min(count).min(FORGOTTEN);
            if spare > forgotten.len() as u64 {
                forgotten = redis::cmd("ZRANGE").arg(&gone).arg(0).arg(spare - 1).call(conn, "presence").await?;
            }
        }
        for worker in &forgotten {
            // A worker that came back, for example after a long SIGSTOP, keeps its presence.
            if !self.is_listed(conn, worker).await? {
                redis::cmd("DEL").arg(keys::worker(&self.prefix, worker)).call::<()>(conn, "presence").await?;
            }
            redis::cmd("ZREM").arg(&gone).arg(worker).call::<()>(conn, "presence").await?;
        }
        Ok(forgotten.len())
    }

    async fn unseen_since(&self, conn: &mut impl Connection, key: &str, time: Duration) -> Result<Vec<String>> {
        let before = server_time_ms(conn).await?.saturating_sub(time.as_millis() as u64);
        Cmd::zrangebyscore_limit(key, "-inf", before, 0, FORGOTTEN as isize).call(conn, "presence").await
    }
}

async fn seen_in(conn: &mut impl Connection, list: &str, worker: &str) -> Result<Option<u64>> {
    let seen: Option<f64> = redis::cmd("ZSCORE").arg(list).arg(worker).call(conn, "presence").await?;
    Ok(seen.map(stored_score))
}
