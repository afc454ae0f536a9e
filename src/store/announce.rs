//! Presence: who works, since when, and on what. For people, for housekeeping, and for the proof of a death.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::asked;
use super::close;
use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use super::settle::LINES;
use super::streams;
use crate::error::Error;
use crate::limits::stored_score;
use crate::options::retention::LimitMs;

/// How long after its last sign the records of a worker's calls are kept.
const KEEP: Duration = Duration::from_secs(3600);

/// The same for workers that are too many.
const KEEP_EXCESS: Duration = Duration::from_secs(300);

/// A worker tells of itself every 5 s: one that was silent for three times as long may be gone.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(15);

/// The most workers that one look puts aside or forgets.
const FORGOTTEN: u64 = 100;

/// A call to one node of a cluster has so long: another one may be away, and what can be told is told.
async fn in_time(is_routed: bool, call: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    if !is_routed {
        return call.await;
    }
    tokio::time::timeout(streams::NODE_PATIENCE, call).await.unwrap_or_else(|_| Err(asked::timed_out()))
}

/// Puts the worker into a list, with the time by the clock of the server.
async fn enlist(conn: &mut OwnConnection, list: &str, worker: &str) -> Result<(), Error> {
    let is_routed = conn.is_routed();
    let mut enlist = scripts::ENLIST.on_key(list);
    in_time(is_routed, async { enlist.arg(worker).call(conn).await.map(drop) }).await
}

impl Store {
    /// Puts the worker into the list of workers, before anything else of it is there: who is not listed is never forgotten, nor taken for dead.
    pub(crate) async fn enlist(&self, conn: &mut OwnConnection, worker: &str) -> Result<(), Error> {
        enlist(conn, &keys::workers(&self.prefix), worker).await
    }

    /// Tells that the worker is there, with what it says of itself.
    pub(crate) async fn announce(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        fields: &[(String, String)],
    ) -> Result<(), Error> {
        let boot_id = fields.iter().find(|(name, _)| name == "bootId").map(|(_, boot_id)| boot_id);
        let lists = boot_id.map(|boot_id| keys::boot(&self.prefix, boot_id));
        let mut away = None;
        for list in lists.into_iter().chain([keys::workers(&self.prefix)]) {
            match enlist(conn, &list, worker).await {
                // In a cluster each is on a node of its own: what can be told is told, also while one of them is away.
                Err(e) if conn.is_routed() && e.is_outage() => away = Some(e),
                told => drop(told?),
            }
        }
        let mut announce = scripts::ANNOUNCE.on_key(&keys::worker(&self.prefix, worker));
        announce.arg(fields).call(conn).await?;
        away.map_or(Ok(()), Err)
    }

    /// Tells that the worker has stopped, and of each task how many jobs it still holds: no call of it counts any more, however late it
    /// comes. What this leaves goes an hour later.
    pub(crate) async fn close(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        tasks: &[(&str, &TaskKeys, usize)],
        boot_id: Option<&str>,
        phase: &str,
    ) -> Result<(), Error> {
        // All together: a round trip may take long.
        let closes = tasks.iter().map(|(_, keys, _)| {
            let mut conn = conn.clone();
            async move { close::close(&mut conn, keys, worker).await }
        });
        let leave = async {
            // Nobody needs to ask whether it lives.
            let Some(boot_id) = boot_id else { return Ok(()) };
            let mut leave = redis::cmd("ZREM");
            leave.arg(keys::boot(&self.prefix, boot_id)).arg(worker);
            leave.query_async::<()>(&mut conn.clone()).await.map_err(|e| classify("presence", e))
        };
        let is_routed = conn.is_routed();
        let closes = join_all(closes.map(|close| in_time(is_routed, close)));
        let (mut told, left) = join(closes, in_time(is_routed, leave)).await;
        told.push(left);
        let mut away = None;
        for told in told {
            match told {
                Err(e) if is_routed && e.is_outage() => away = Some(e),
                told => told?,
            }
        }
        let now = streams::server_time_ms(conn).await?;
        // By the names of its tasks it is forgotten, also where the server lost what it had said before.
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        tasks.iter().for_each(|(name, _, jobs)| *held.entry(name).or_default() += jobs);
        let names: Vec<&str> = held.keys().copied().collect();
        let mut fields = vec![("stoppedAt".to_owned(), now.to_string()), ("tasks".to_owned(), names.join(" "))];
        fields.push(("phase".to_owned(), phase.to_owned()));
        fields.extend(held.iter().map(|(name, jobs)| (format!("held:{name}"), jobs.to_string())));
        self.announce(conn, worker, &fields).await?;
        away.map_or(Ok(()), Err)
    }

    /// Removes the records of the last calls of a worker that is gone, on each task that it worked, and puts it among those of whom
    /// only their presence is kept. Each step may be repeated.
    pub(crate) async fn put_aside(&self, conn: &mut OwnConnection, worker: &str) -> Result<(), Error> {
        let classify = |e| classify("presence", e);
        let (workers, gone) = (keys::workers(&self.prefix), keys::gone(&self.prefix));
        let mut seen = redis::cmd("ZSCORE");
        let seen: Option<f64> = seen.arg(&workers).arg(worker).query_async(conn).await.map_err(classify)?;
        // Another one has done it.
        let Some(seen) = seen else { return Ok(()) };
        let mut said = redis::cmd("HMGET");
        said.arg(keys::worker(&self.prefix, worker)).arg("tasks").arg("bootId");
        let (tasks, boot_id): (Option<String>, Option<String>) = said.query_async(conn).await.map_err(classify)?;
        for task in tasks.iter().flat_map(|names| names.split_whitespace()) {
            // Over this connection: the keeper's own runtime has no other.
            let tables = self.tables(task);
            match tables.refresh_over(conn).await {
                Err(e) if e.is_outage() => return Err(e),
                // Something foreign is stored there: what is known must do.
                _ => {}
            }
            for keys in tables.all().iter() {
                let lines = LINES.map(|line| format!("{worker}{line}"));
                let mut records = redis::cmd("HDEL");
                records.arg(keys.get(Key::Calls)).arg(&lines);
                records.query_async::<()>(conn).await.map_err(classify)?;
            }
        }
        if let Some(boot_id) = boot_id {
            let mut leave = redis::cmd("ZREM");
            leave.arg(keys::boot(&self.prefix, &boot_id)).arg(worker);
            leave.query_async::<()>(conn).await.map_err(classify)?;
        }
        // In this order: who is in neither list would be kept for ever.
        let mut add = redis::cmd("ZADD");
        add.arg(&gone).arg(stored_score(seen)).arg(worker);
        add.query_async::<()>(conn).await.map_err(classify)?;
        redis::cmd("ZREM").arg(&workers).arg(worker).query_async(conn).await.map_err(classify)
    }

    /// Removes the presence of workers that were gone for long, or are too many, a bounded number of them. Returns how many.
    pub(crate) async fn forget_gone(&self, conn: &mut OwnConnection, keep: LimitMs) -> Result<usize, Error> {
        let gone = keys::gone(&self.prefix);
        let mut forgotten = match keep.max_age_ms {
            Some(age) => self.unseen_since(conn, &gone, Duration::from_millis(age)).await?,
            None => Vec::new(),
        };
        if let Some(most) = keep.max_count {
            let classify = |e| classify("presence", e);
            let count: u64 = redis::cmd("ZCARD").arg(&gone).query_async(conn).await.map_err(classify)?;
            let spare = (count + self.silent(conn).await?).saturating_sub(most).min(count).min(FORGOTTEN);
            if spare > forgotten.len() as u64 {
                let mut oldest = redis::cmd("ZRANGE");
                oldest.arg(&gone).arg(0).arg(spare - 1);
                forgotten = oldest.query_async(conn).await.map_err(classify)?;
            }
        }
        for worker in &forgotten {
            let classify = |e| classify("presence", e);
            // One that came back, as a process does that was stopped for long, has a presence that is alive.
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

    /// The workers of one boot of a host that were seen in the last hour or so, the latest first, at most `most`.
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

    /// Writes into the presence of a worker that it is dead, and how that is known. It is for people; nothing is written where nothing
    /// is known of the worker.
    pub(crate) async fn note_death(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        by: &str,
        proof: &str,
    ) -> Result<(), Error> {
        let classify = |e| classify("presence", e);
        let key = keys::worker(&self.prefix, worker);
        let mut known = redis::cmd("HMGET");
        let (seen, noted): (Option<f64>, Option<f64>) =
            known.arg(&key).arg("lastSeenAt").arg("deadAt").query_async(conn).await.map_err(classify)?;
        // The first to know says since when; one that came back since then dies anew.
        if seen.is_none_or(|seen| noted.is_some_and(|noted| noted >= seen)) {
            return Ok(());
        }
        let now = streams::server_time_ms(conn).await?;
        let mut note = redis::cmd("HSET");
        note.arg(&key).arg("deadAt").arg(now).arg("deadSays").arg(by).arg("deadProof").arg(proof);
        note.query_async(conn).await.map_err(classify)
    }

    /// Workers that were not seen for an hour, and the oldest that exceed `most`; a bounded number of them.
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

    /// How many workers are in the list that were not seen for some minutes.
    async fn silent(&self, conn: &mut impl Connection) -> Result<u64, Error> {
        let before = streams::server_time_ms(conn).await?.saturating_sub(KEEP_EXCESS.as_millis() as u64);
        let mut count = redis::cmd("ZCOUNT");
        count.arg(keys::workers(&self.prefix)).arg("-inf").arg(before);
        count.query_async(conn).await.map_err(|e| classify("presence", e))
    }

    async fn unseen_since(&self, conn: &mut impl Connection, key: &str, time: Duration) -> Result<Vec<String>, Error> {
        let before = streams::server_time_ms(conn).await?.saturating_sub(time.as_millis() as u64);
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(key).arg("-inf").arg(before).arg("LIMIT").arg(0).arg(FORGOTTEN);
        cmd.query_async(conn).await.map_err(|e| classify("presence", e))
    }

    /// The workers that are listed, with when they were seen last, ms: those that are not silent, then the others, then those that are
    /// gone. At most so many of each, the latest first.
    pub(crate) async fn workers(
        &self,
        conn: &mut OwnConnection,
        now_ms: u64,
        most: [usize; 3],
    ) -> Result<Vec<(String, u64)>, Error> {
        let (workers, gone) = (keys::workers(&self.prefix), keys::gone(&self.prefix));
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
                // In a cluster they are on a node of their own, which may be away: those who live are told of.
                Err(e) if *key == gone && conn.is_routed() && e.is_outage() => Vec::new(),
                page => page?,
            };
            let page = page.into_iter().map(|(Text(worker), seen)| (worker, stored_score(seen)));
            found.extend(page.filter(|(worker, _)| known.insert(worker.clone())));
        }
        Ok(found)
    }

    /// When a worker was seen last, ms, as the lists have it; `None` where it is in none.
    pub(crate) async fn last_seen(&self, conn: &mut impl Connection, worker: &str) -> Result<Option<u64>, Error> {
        let mut seen = None;
        for list in [keys::workers(&self.prefix), keys::gone(&self.prefix)] {
            let mut cmd = redis::cmd("ZSCORE");
            let found: Option<f64> =
                cmd.arg(list).arg(worker).query_async(conn).await.map_err(|e| classify("presence", e))?;
            seen = seen.max(found.map(stored_score));
        }
        Ok(seen)
    }

    /// Whether a worker is listed among those that were seen in the last hour.
    pub(crate) async fn is_listed(&self, conn: &mut impl Connection, worker: &str) -> Result<bool, Error> {
        let mut cmd = redis::cmd("ZSCORE");
        cmd.arg(keys::workers(&self.prefix)).arg(worker);
        let seen: Option<f64> = cmd.query_async(conn).await.map_err(|e| classify("presence", e))?;
        Ok(seen.is_some())
    }

    /// What a worker said of itself last; empty when nothing is kept of it.
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
}
