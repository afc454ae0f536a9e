//! Outboxes: what remains to be done for instances of a workflow (`lua/flow_look.lua`, `lua/flow_resend.lua`,
//! `lua/flow_put_off.lua`), and a task's jobs that ended as nodes (`lua/ended.lua`).

use std::time::{Duration, SystemTime};

use super::advance::{Advanced, EndedNode, NodeEnd, counted, news};
use super::start::{ToSend, to_send};
use crate::backend::connection::Connection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::reply::{PlainCall, Text};
use crate::backend::scripts;
use crate::backend::values::ValuePlace;
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::limits::{BATCH, stored_score};
use crate::unix_time::{ms_of, to_ms};

/// Reads entries older than the grace, and whether there may be more.
pub(crate) async fn look(conn: &mut impl Connection, keys: &TaskKeys, grace: Duration) -> Result<(Advanced, bool)> {
    let mut reply = scripts::FLOW_LOOK.on(keys).arg(to_ms(grace)).arg(BATCH).answer(conn).await?;
    let more: u8 = reply.next()?;
    Ok((news(&mut reply, keys)?, more > 0))
}

/// The nodes to send again, and those that no longer need it, as `<instance>/<node>/<run>`.
pub(crate) async fn resend(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    nodes: &[NodeId],
) -> Result<(Vec<ToSend>, Vec<String>)> {
    let mut reply = scripts::FLOW_RESEND.on(keys).args(nodes.iter().map(NodeId::words)).answer(conn).await?;
    let lost = counted(&mut reply)?;
    Ok((to_send(&mut reply, keys)?, lost))
}

/// Delays at most 200 entries of a workflow's outbox that could not be carried out, so that they do not hold up others.
/// Without entries, it records that the workflow could not record ended jobs: those are in the outboxes of their tasks.
pub(crate) async fn put_off(conn: &mut impl Connection, keys: &TaskKeys, entries: &[String]) -> Result<()> {
    scripts::FLOW_PUT_OFF.on(keys).args(entries).call(conn).await.map(drop)
}

/// Removes entries from the outbox of a workflow or of a task.
pub(crate) async fn done(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    entries: &[impl redis::ToSingleRedisArg + Sync],
) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    redis::cmd("ZREM").arg(keys.get(Key::Outbox)).arg(entries).call(conn, "outbox").await
}

/// Since when each entry has been in the outbox, ms; `None` if it is not there.
pub(crate) async fn in_outbox(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    entries: &[String],
) -> Result<Vec<Option<u64>>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    scores(conn, keys.get(Key::Outbox), entries.iter().map(String::as_str), "outbox").await
}

/// Which of the jobs are in the outbox of their task.
pub(crate) async fn among(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<bool>> {
    let found = scores(conn, keys.get(Key::Outbox), ids.iter().map(JobId::as_str), "outbox").await?;
    Ok(found.iter().map(Option::is_some).collect())
}

/// When these jobs ended, ms; `None` for those that have not.
pub(crate) async fn ended_at(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<Option<u64>>> {
    let mut found = vec![None; ids.len()];
    for place in [Key::Completed, Key::Failed, Key::Cancelled] {
        let ended = scores(conn, keys.get(place), ids.iter().map(JobId::as_str), "ended").await?;
        for (at, score) in found.iter_mut().zip(ended) {
            *at = at.or(score);
        }
    }
    Ok(found)
}

async fn scores<'a>(
    conn: &mut impl Connection,
    place: &str,
    members: impl Iterator<Item = &'a str>,
    what: &'static str,
) -> Result<Vec<Option<u64>>> {
    let members: Vec<&str> = members.collect();
    let found: Vec<Option<f64>> = redis::cmd("ZMSCORE").arg(place).arg(members).call(conn, what).await?;
    Ok(found.into_iter().map(|score| score.map(stored_score)).collect())
}

/// An ended node, and where to read its value or failure if that did not come with others.
pub(crate) type Found = (EndedNode, Option<ValuePlace>);

/// Reads jobs of a task that ended longer ago than the grace, and whether there may be more. Ids that name no node come
/// in the second list.
pub(crate) async fn ended(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    grace: Duration,
) -> Result<(Vec<Found>, Vec<JobId>, bool)> {
    let mut reply = scripts::ENDED.on(keys).arg(to_ms(grace)).arg(BATCH).answer(conn).await?;
    let more: u8 = reply.next()?;
    let words: Vec<redis::Value> = reply.rest()?;
    let (mut found, mut strange, mut words) = (Vec::new(), Vec::new(), words.into_iter());
    while let (Some(id), Some(end), Some(said)) = (words.next(), words.next(), words.next()) {
        let text = |value| redis::from_redis_value::<Text>(value).map_or_else(|_| String::new(), |Text(text)| text);
        let (id, end) = (JobId::from_wire(text(id)), NodeEnd::from_wire(&text(end)));
        let column = if end == NodeEnd::Completed { Key::Result } else { Key::Error };
        let (said, place) = match said {
            redis::Value::Int(bytes) => {
                let (field, bytes) = (id.to_string(), usize::try_from(bytes).unwrap_or(0));
                (Vec::new(), Some(ValuePlace { column, field, bytes }))
            }
            said => (redis::from_redis_value(said).unwrap_or_default(), None),
        };
        match NodeId::of(&id) {
            Some(node) => found.push((EndedNode { id: node, end, said }, place)),
            None => strange.push(id),
        }
    }
    Ok((found, strange, more > 0))
}

/// Delays ended jobs that no workflow could record, so that they do not hold up others. [`ended`] returns entries that
/// are 10 s old, so it returns these 5 s later.
pub(crate) async fn put_jobs_off(conn: &mut impl Connection, keys: &TaskKeys, ids: &[String]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let since = ms_of(SystemTime::now()).saturating_sub(5_000);
    let scores: Vec<(u64, &String)> = ids.iter().map(|id| (since, id)).collect();
    redis::cmd("ZADD").arg(keys.get(Key::Outbox)).arg("XX").arg(scores).call(conn, "outbox").await
}
