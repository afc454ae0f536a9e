//! A task as a whole: its counts (`lua/counts.lua`), its state (`lua/overview.lua`), the size of its keys, and foreign keys.

use std::collections::HashMap;
use std::sync::Arc;

use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys::{self, Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use super::timeouts::RESPONSE_TIMEOUT;
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::join::try_join_all;
use crate::limits::{stored_number, stored_score};

/// The jobs of a task, counted in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedJobs {
    /// How many wait, are delayed, claimed, running, finalizing, completed, failed and cancelled.
    pub(crate) jobs: [u64; 8],
    pub(crate) is_paused: bool,
}

pub(crate) async fn counts(conn: &mut impl Connection, keys: &TaskKeys) -> Result<CountedJobs> {
    let mut reply = scripts::COUNTS.on(keys).answer(conn).await?;
    let mut jobs = [0; 8];
    for count in &mut jobs {
        *count = reply.next()?;
    }
    Ok(CountedJobs { jobs, is_paused: reply.next::<u8>()? == 1 })
}

/// Counts the jobs of all tables of a task, each table in one step.
pub(crate) async fn count_all(store: &Store, tables: &[Arc<TaskKeys>]) -> Result<[u64; 8]> {
    let looks = tables.iter().map(|keys| {
        store
            .ask(RESPONSE_TIMEOUT, move |mut conn| async move { counts(&mut conn, keys).await.map(|found| found.jobs) })
    });
    let add = |sum: [u64; 8], jobs: [u64; 8]| std::array::from_fn(|at| sum[at] + jobs[at]);
    Ok(try_join_all(looks).await?.into_iter().fold([0; 8], add))
}

/// The state of a task at one moment.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    pub(crate) now_ms: u64,
    /// How many jobs wait, are delayed, claimed, running, finalizing, completed, failed and cancelled.
    pub(crate) counts: [u64; 8],
    /// The first job of each list, and when it began to wait, ms; `None` if its id contains that time.
    pub(crate) heads: Vec<(JobId, Option<u64>)>,
    pub(crate) first_due_ms: Option<u64>,
    pub(crate) candidates: u64,
    pub(crate) active: u64,
    pub(crate) meta: HashMap<String, String>,
    /// Held jobs that sweeps have parked.
    pub(crate) parked: u64,
    /// Kept jobs that failed in the last 5 minutes.
    pub(crate) failed_lately: u64,
    /// Kept jobs that completed in the last 5 minutes.
    pub(crate) completed_lately: u64,
    pub(crate) due: u64,
    /// The number of payloads, which equals the number of jobs.
    pub(crate) payloads: u64,
    /// Keys that are ready, rest and are full, and since when the first one is full, ms. `None` without keys.
    pub(crate) lanes: Option<([u64; 3], Option<u64>)>,
}

impl Overview {
    /// A field of `meta` that is a number.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        stored_number(self.meta.get(field)?)
    }

    /// A field of `meta` that is not empty.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.meta.get(field).map(String::as_str).filter(|text| !text.is_empty() && *text != "-")
    }
}

/// Reads the task, in one step.
pub(crate) async fn overview(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Overview> {
    let mut reply = scripts::OVERVIEW.on(keys).answer(conn).await?;
    let now_ms = reply.next()?;
    let counts: Vec<u64> = reply.next()?;
    let counts = counts.try_into().map_err(|counts| reply.unexpected(&format!("{counts:?}")))?;
    let heads: Vec<Text> = reply.next()?;
    let heads = heads.chunks_exact(2).filter(|head| !head[0].0.is_empty());
    let heads = heads.map(|head| (JobId::from_wire(head[0].0.as_str()), stored_number(&head[1].0))).collect();
    let pairs = |words: Vec<Text>| words.chunks_exact(2).map(|pair| (pair[0].0.clone(), pair[1].0.clone())).collect();
    Ok(Overview {
        now_ms,
        counts,
        heads,
        first_due_ms: reply.text()?.parse().ok().map(stored_score),
        candidates: reply.next()?,
        active: reply.next()?,
        meta: pairs(reply.next()?),
        parked: reply.next()?,
        failed_lately: reply.next()?,
        completed_lately: reply.next()?,
        due: reply.next()?,
        payloads: reply.next()?,
        lanes: lanes_of(&reply.next::<Vec<Text>>()?),
    })
}

fn lanes_of(words: &[Text]) -> Option<([u64; 3], Option<u64>)> {
    let numbers: Vec<Option<u64>> = words.iter().map(|Text(word)| stored_number(word)).collect();
    let [ready, resting, full, since] = numbers[..] else { return None };
    Some(([ready?, resting?, full?], since))
}

/// The epoch of a task, and the interval in force, ms.
pub(crate) async fn epoch(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(u64, Option<u64>)> {
    let (epoch, interval): (Option<u64>, Option<u64>) =
        redis::cmd("HMGET").arg(keys.get(Key::Meta)).arg("epoch").arg("interval").call(conn, "overview").await?;
    Ok((epoch.unwrap_or(0), interval))
}

/// Whether a limit of the task is reached, as stored.
pub(crate) async fn full(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<String>> {
    let (full,): (Option<String>,) =
        redis::cmd("HMGET").arg(keys.get(Key::Meta)).arg("full").call(conn, "overview").await?;
    Ok(full)
}

/// How many list entries belong to no waiting job.
pub(crate) async fn tombstones(conn: &mut impl Connection, keys: &TaskKeys) -> Result<u64> {
    let tombstones: Option<Text> =
        redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("tombstones").call(conn, "overview").await?;
    Ok(tombstones.and_then(|Text(tombstones)| stored_number(&tombstones)).unwrap_or(0))
}

/// A key, the type that is stored there, the type that should be, and whether it is the key of the options.
type Foreign = (String, String, &'static str, bool);

/// The keys of a task that have a wrong type.
pub(crate) async fn foreign(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<Foreign>> {
    foreign_in_table(conn, keys, Key::ALL.into_iter()).await
}

/// The keys of a workflow that have a wrong type.
pub(crate) async fn foreign_of_workflow(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<Foreign>> {
    let own = Key::ALL.into_iter().skip_while(|key| *key != Key::Instances);
    foreign_in_table(conn, keys, own.chain(ALSO_OF_WORKFLOWS)).await
}

/// The keys that workflows share with tasks.
const ALSO_OF_WORKFLOWS: [Key; 7] =
    [Key::Completed, Key::Failed, Key::Cancelled, Key::Error, Key::Outbox, Key::Meta, Key::Events];

/// All keys of a table are on one node.
async fn foreign_in_table(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    which: impl Iterator<Item = Key> + Clone,
) -> Result<Vec<Foreign>> {
    let mut pipe = redis::pipe();
    for key in which.clone() {
        pipe.cmd("TYPE").arg(keys.get(key));
    }
    let kinds: Vec<String> = pipe.call(conn, "type").await?;
    let found = which.zip(kinds).map(|(key, kind)| (keys.get(key).to_owned(), kind, key.kind(), key == Key::Meta));
    Ok(found.filter(is_foreign).collect())
}

fn is_foreign((_, kind, expected, _): &Foreign) -> bool {
    kind != "none" && kind != expected
}

/// The lists of tasks, workers and workflows that have a wrong type.
pub(crate) async fn foreign_lists(conn: &OwnConnection, prefix: &str) -> Result<Vec<Foreign>> {
    let lists = [keys::tasks(prefix), keys::workers(prefix), keys::dead_workers(prefix), keys::workflows(prefix)];
    let looks = lists.into_iter().map(|key| {
        let mut conn = conn.clone();
        async move {
            let kind: String = redis::cmd("TYPE").arg(&key).call(&mut conn, "type").await?;
            Ok::<_, Error>((key, kind, "zset", false))
        }
    });
    Ok(try_join_all(looks).await?.into_iter().filter(is_foreign).collect())
}

/// The existing keys of the task, each with its size in bytes. `MEMORY USAGE` samples the entries of a key.
pub(crate) async fn key_sizes(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<(Key, u64)>> {
    let mut ask = redis::pipe();
    for key in Key::ALL {
        ask.cmd("MEMORY").arg("USAGE").arg(keys.get(key));
    }
    let bytes: Vec<Option<u64>> = ask.call(conn, "memory usage").await?;
    Ok(Key::ALL.into_iter().zip(bytes).filter_map(|(key, bytes)| Some((key, bytes?))).collect())
}
