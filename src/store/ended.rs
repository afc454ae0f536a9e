//! `lua/ended.lua`: ended jobs of workflows, which these are to be told of.

use std::time::{Duration, SystemTime};

use super::connection::Connection;
use super::fault::classify;
use super::flow_advance::{EndedNode, NodeEnd};
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::limits::{BATCH, stored_score};
use crate::times::{ms_of, to_ms};

/// When these jobs ended, ms; `None` of those that have not.
pub(crate) async fn ended_at(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<u64>>, Error> {
    let mut found = vec![None; ids.len()];
    for place in [Key::Completed, Key::Failed, Key::Cancelled] {
        let mut cmd = redis::cmd("ZMSCORE");
        cmd.arg(keys.get(place));
        for id in ids {
            cmd.arg(id.as_str());
        }
        let scores: Vec<Option<f64>> = cmd.query_async(conn).await.map_err(|e| classify("ended", e))?;
        for (at, score) in found.iter_mut().zip(scores) {
            *at = at.or(score.map(stored_score));
        }
    }
    Ok(found)
}

/// Those that ended longer ago than the grace, and whether there may be more. Ids of which no node can be read are told apart.
pub(crate) async fn ended(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    grace: Duration,
) -> Result<(Vec<EndedNode>, Vec<JobId>, bool), Error> {
    let mut call = scripts::ENDED.on(keys);
    call.arg(to_ms(grace)).arg(BATCH);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let more: u8 = reply.next()?;
    let words: Vec<redis::Value> = reply.rest()?;
    let (mut found, mut strange, mut words) = (Vec::new(), Vec::new(), words.into_iter());
    while let (Some(id), Some(end), Some(said)) = (words.next(), words.next(), words.next()) {
        let text = |value| redis::from_redis_value::<Text>(value).map_or_else(|_| String::new(), |Text(text)| text);
        let (id, end, said) =
            (JobId::from_wire(text(id)), text(end), redis::from_redis_value(said).unwrap_or_default());
        match NodeId::of(&id) {
            Some(node) => found.push(EndedNode { id: node, end: NodeEnd::from_wire(&end), said }),
            None => strange.push(id),
        }
    }
    Ok((found, strange, more > 0))
}

/// Puts jobs off of which no workflow could be told, so that they hold up no others: looks take what is 10 s old, and these 5 s later.
pub(crate) async fn put_off(conn: &mut impl Connection, keys: &TaskKeys, ids: &[String]) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let since = ms_of(SystemTime::now()).saturating_sub(5_000);
    let mut cmd = redis::cmd("ZADD");
    cmd.arg(keys.get(Key::Outbox)).arg("XX");
    for id in ids {
        cmd.arg(since).arg(id);
    }
    cmd.query_async(conn).await.map_err(|e| classify("outbox", e))
}
