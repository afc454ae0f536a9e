//! Upkeep of workflows: which are due (`lua/flow_turn.lua`), instances without progress (`lua/flow_audit.lua`) or in no
//! place (`lua/flow_place.lua`), and the removal of ended ones (`lua/flow_trim.lua`).

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::backend::connection::Connection;
use crate::backend::engine::Store;
use crate::backend::keys::{self, Key, TaskKeys};
use crate::backend::reply::{PlainCall, Text};
use crate::backend::scripts;
use crate::backend::tables::Tables;
use crate::error::Result;
use crate::limits::{BATCH, MIN_AGE_MS, stored_score};
use crate::options::retention::LimitMs;
use crate::unix_time::to_ms;

/// The most workflows that a worker takes at a time.
const TAKEN: usize = 20;

/// The most workflows of one answer.
const MOST: isize = 1000;

impl Store {
    pub(crate) fn workflow(&self, name: &str) -> TaskKeys {
        TaskKeys::of_workflow(&self.prefix, name, self.is_cluster())
    }

    /// The table of a workflow, for readers of its events.
    pub(crate) fn workflow_tables(&self, name: &str) -> Arc<Tables> {
        self.tables(&keys::workflow_tag(name))
    }

    pub(crate) async fn list_workflows(&self, conn: &mut impl Connection, names: &[&str]) -> Result<()> {
        // A new workflow is due at once.
        let due: Vec<(u8, &&str)> = names.iter().map(|name| (0, name)).collect();
        redis::cmd("ZADD").arg(keys::workflows(&self.prefix)).arg("NX").arg(due).call(conn, "workflows").await
    }

    /// The listed workflows, at most 1,000, each with the time of its last upkeep, ms.
    pub(crate) async fn workflows(&self, conn: &mut impl Connection) -> Result<Vec<(String, u64)>> {
        let found: Vec<(Text, f64)> =
            Cmd::zrange_withscores(keys::workflows(&self.prefix), 0, MOST - 1).call(conn, "workflows").await?;
        let mut found: Vec<(String, u64)> =
            found.into_iter().map(|(Text(name), ms)| (name, stored_score(ms))).collect();
        found.sort();
        Ok(found)
    }

    /// Records that the upkeep of a workflow is done.
    pub(crate) async fn upkeep_done(&self, conn: &mut impl Connection, name: &str) -> Result<()> {
        scripts::ENLIST.on_key(&keys::workflows(&self.prefix)).arg(name).call(conn).await.map(drop)
    }

    /// Takes workflows whose last upkeep was this long ago. Returns whether there may be more.
    pub(crate) async fn take_workflows(
        &self,
        conn: &mut impl Connection,
        pause: Duration,
    ) -> Result<(Vec<String>, bool)> {
        let mut reply =
            scripts::FLOW_TURN.on_key(&keys::workflows(&self.prefix)).arg(to_ms(pause)).arg(TAKEN).answer(conn).await?;
        let names = reply.texts()?;
        let more = names.len() >= TAKEN;
        Ok((names, more))
    }
}

/// The tasks of a workflow's nodes.
pub(crate) async fn tasks(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<String>> {
    let names: Vec<Text> =
        redis::cmd("ZRANGE").arg(keys.get(Key::FlowTasks)).arg(0).arg(-1).call(conn, "tasks").await?;
    Ok(names.into_iter().map(|Text(name)| name).collect())
}

/// Takes instances with open nodes that have not advanced for this long. Returns whether there may be more.
pub(crate) async fn audit(conn: &mut impl Connection, keys: &TaskKeys, age: Duration) -> Result<(Vec<String>, bool)> {
    let mut reply = scripts::FLOW_AUDIT.on(keys).arg(to_ms(age)).arg(BATCH).answer(conn).await?;
    let more: u8 = reply.next()?;
    Ok((reply.texts()?, more > 0))
}

/// Puts those of the instances that are in no place into one; at most 200. Returns how many. Safe to repeat.
pub(crate) async fn place(conn: &mut impl Connection, keys: &TaskKeys, instances: &[String]) -> Result<u64> {
    scripts::FLOW_PLACE.on(keys).args(instances).answer(conn).await?.next()
}

/// Removes ended instances from this place. Returns how many, and whether more may follow at once.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    limit: LimitMs,
) -> Result<(u64, bool)> {
    let mut call = scripts::FLOW_TRIM.on_place(keys, place);
    let age = if limit.remove_at_once { Some(MIN_AGE_MS) } else { limit.max_age_ms };
    call.arg(age.unwrap_or(u64::from(u32::MAX) * 1000).max(MIN_AGE_MS));
    call.arg(limit.max_count.map_or_else(|| "-".to_owned(), |count| count.to_string())).arg(MIN_AGE_MS);
    let mut reply = call.answer(conn).await?;
    let (gone, more): (u64, u8) = (reply.next()?, reply.next()?);
    Ok((gone, more > 0))
}

/// Writes how long ended instances are kept, for the workers that trim.
pub(crate) async fn keep(conn: &mut impl Connection, keys: &TaskKeys, limit: LimitMs) -> Result<()> {
    let text = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let at_once = u8::from(limit.remove_at_once);
    let words = format!("{at_once} {} {}", text(limit.max_age_ms), text(limit.max_count));
    redis::cmd("HSET").arg(keys.get(Key::Meta)).arg("keep").arg(words).call(conn, "meta").await
}

/// How long ended instances are kept; `None` if that was not written.
pub(crate) async fn kept(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<LimitMs>> {
    let text: Option<String> = redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("keep").call(conn, "meta").await?;
    let text = text.unwrap_or_default();
    let mut words = text.split(' ');
    let (Some(at_once), Some(age), Some(count)) = (words.next(), words.next(), words.next()) else { return Ok(None) };
    Ok(Some(LimitMs { remove_at_once: at_once == "1", max_age_ms: age.parse().ok(), max_count: count.parse().ok() }))
}
