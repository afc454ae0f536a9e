//! Checks a server before anything is written to it (also `lua/rights.lua`), and reads what it reports about itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::{InfoDict, RedisResult};

use super::classify::classify;
use super::connection::{Connection, OwnConnection};
use super::keys::TaskKeys;
use super::reply::PlainCall;
use super::scripts;
use super::streams::server_time_ms;
use crate::error::{Error, Result};
use crate::join::join_all;

/// The oldest server that has every command the scripts use (SMISMEMBER, ZMSCORE, XTRIM with MINID).
const OLDEST: (u32, u32) = (6, 2);

/// The oldest version for clusters: scripts can publish, and `CLUSTER SLOTS` reports host names.
const OLDEST_CLUSTER: (u32, u32) = (7, 0);

/// Whether to refuse a server whose eviction policy could delete jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionCheck {
    Refuse,
    Accept,
}

/// Checks the server's version and its eviction policy.
///
/// # Errors
/// `Unsupported` with what is wrong; `Connect` if the server does not answer.
pub(crate) async fn check(conn: &mut impl Connection, eviction: EvictionCheck, is_cluster: bool) -> Result<()> {
    let server: InfoDict = redis::cmd("INFO").arg("server").call(conn, "info").await?;
    // Valkey has its own name for the field.
    let mode = server.get::<String>("redis_mode").or_else(|| server.get::<String>("server_mode")).unwrap_or_default();
    if mode == "sentinel" {
        let what =
            "the server is a sentinel, which holds no data: write redis-sentinel://host:26379?sentinelServiceName=name";
        return Err(Error::Unsupported { what: what.to_owned() });
    }
    if (mode == "cluster") != is_cluster {
        let what = match is_cluster {
            true => "the server is not a cluster node: write redis://host:port",
            false => "the server is a cluster node: write redis-cluster://host:port",
        };
        return Err(Error::Unsupported { what: what.to_owned() });
    }
    let version = server.get::<String>("redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if is_cluster && found < OLDEST_CLUSTER {
        let what =
            format!("a node of the cluster is Redis {version}; Heartline needs Redis 7.0 or later there, or Valkey");
        return Err(Error::Unsupported { what });
    }
    if found < OLDEST {
        return Err(Error::Unsupported {
            what: format!("the server is Redis {version}; Heartline needs Redis 6.2 or later, or Valkey"),
        });
    }
    let memory: InfoDict = redis::cmd("INFO").arg("memory").call(conn, "info").await?;
    let policy = memory.get::<String>("maxmemory_policy").unwrap_or_default();
    if policy.starts_with("allkeys-") && eviction == EvictionCheck::Refuse {
        return Err(Error::Unsupported {
            what: format!(
                "the server's maxmemory-policy is {policy}, which deletes whole columns of jobs; set it to \
                 noeviction, or accept the risk with AppBuilder::accept_eviction"
            ),
        });
    }
    Ok(())
}

/// What the server reports about itself.
#[derive(Debug)]
pub(crate) struct ServerLook {
    pub(crate) info: InfoDict,
    /// Its clock, ms since 1970.
    pub(crate) now_ms: u64,
    /// How long each of a few short calls took.
    pub(crate) round_trips: Vec<Duration>,
    /// Its error for a write, if it refuses writes.
    pub(crate) refusal: Option<String>,
    /// How many replicas it needs to accept writes, if any.
    pub(crate) wanted_replicas: Option<u64>,
}

impl ServerLook {
    /// What is known of a server that does not answer.
    pub(crate) fn nothing() -> ServerLook {
        let (info, round_trips) = (InfoDict::new(""), Vec::new());
        ServerLook { info, now_ms: 0, round_trips, refusal: None, wanted_replicas: None }
    }
}

/// Codes of errors for one write that do not affect others: no permission, a wrong type, a slot that moves.
const NOT_OF_THE_SERVER: [&str; 5] = ["NOPERM", "WRONGTYPE", "MOVED", "ASK", "TRYAGAIN"];

/// How many short calls are measured.
const TIMED: usize = 9;

/// For how long to measure, if each call takes long.
const TIMED_FOR: Duration = Duration::from_secs(1);

/// How long each answer of a cluster node may take. A node that is unreachable must not hide the others.
const NODE_PATIENCE: Duration = Duration::from_secs(2);

/// Reads the state of the single server, or of every primary of a cluster with its address. `keys` are sorted sets of
/// the crate; each server should have one of them.
///
/// # Errors
/// The error of the single server; in a cluster that of the last node, if no node answers.
pub(crate) async fn look_at_all(conn: &OwnConnection, keys: &[String]) -> Result<Vec<(String, Result<ServerLook>)>> {
    let places = conn.places();
    let is_alone = !conn.is_routed();
    let looks = places.into_iter().map(|place| async move {
        let timeout = (!is_alone).then_some(NODE_PATIENCE);
        let looked = async {
            let conn = in_time(timeout, conn.at_place(&place)).await?;
            look(&mut conn.map_err(|e| classify("info", e))?, keys, timeout).await
        };
        let looked = looked.await.map_err(|e| match timeout {
            Some(_) if e.is_timeout() => Error::timed_out().by_node(Some(place.clone())),
            _ => e,
        });
        (place, looked)
    });
    let mut looked = join_all(looks).await;
    if looked.iter().all(|(_, look)| look.is_err())
        && let Some((_, Err(e))) = looked.pop()
    {
        return Err(e);
    }
    Ok(looked)
}

async fn in_time<T>(timeout: Option<Duration>, answer: impl Future<Output = T>) -> Result<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, answer).await.map_err(|_| Error::timed_out()),
        None => Ok(answer.await),
    }
}

/// Reads the server's state. Tests whether it accepts writes, with a write that changes nothing to a key that it has.
async fn look(conn: &mut OwnConnection, keys: &[String], timeout: Option<Duration>) -> Result<ServerLook> {
    let info: RedisResult<InfoDict> = in_time(timeout, redis::cmd("INFO").query_async(conn)).await?;
    let info = info.map_err(|e| classify("info", e))?;
    let (mut round_trips, mut now_ms, timed_from) = (Vec::with_capacity(TIMED), 0, Instant::now());
    while round_trips.len() < TIMED && (round_trips.is_empty() || timed_from.elapsed() < TIMED_FOR) {
        let begun = Instant::now();
        now_ms = in_time(timeout, server_time_ms(conn)).await??;
        round_trips.push(begun.elapsed());
    }
    let written = match keys.iter().find(|key| conn.has(key)) {
        Some(key) => in_time(timeout, redis::cmd("ZREM").arg(key).arg("").query_async::<()>(conn)).await?,
        None => Ok(()),
    };
    let refused =
        written.err().filter(|e| !e.is_io_error() && !NOT_OF_THE_SERVER.contains(&e.code().unwrap_or_default()));
    let mut refusal = refused.map(|e| e.to_string());
    if refusal.is_none() && info.get::<u8>("cluster_enabled") == Some(1) {
        // If the server has none of the keys, no write was tested. A denied `CLUSTER INFO` is ignored.
        let asked = in_time(timeout, redis::cmd("CLUSTER").arg("INFO").query_async::<String>(conn)).await?;
        let state = asked.unwrap_or_default();
        refusal = state.contains("cluster_state:fail").then(|| "CLUSTERDOWN The cluster is down".to_owned());
    }
    let wanted_replicas = in_time(timeout, wanted_replicas(conn, &info)).await?;
    Ok(ServerLook { info, now_ms, round_trips, refusal, wanted_replicas })
}

/// How many replicas the server needs to accept a write. If `INFO` counts them, there is such a number; the number
/// itself is a setting that the user may not be allowed to read.
async fn wanted_replicas(conn: &mut OwnConnection, info: &InfoDict) -> Option<u64> {
    info.get::<String>("min_slaves_good_slaves")?;
    let mut ask = redis::cmd("CONFIG");
    let setting = ask.arg("GET").arg("min-replicas-to-write").query_async::<HashMap<String, u64>>(conn).await;
    Some(setting.ok().and_then(|setting| setting.into_values().next()).unwrap_or(1))
}

/// How many keys are listed for a command.
const NAMED: usize = 3;

/// Checks, as far as the server can tell, that the user may run every command of the scripts that move jobs.
///
/// # Errors
/// `Unsupported` with what is missing.
pub(crate) async fn check_rights(conn: &mut impl Connection, keys: &TaskKeys) -> Result<()> {
    let mut reply = scripts::RIGHTS.on(keys).answer(conn).await?;
    let missing: Vec<String> = reply.rest()?;
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("the redis user may not run {}; grant this, or jobs would be lost", named(&missing));
    Err(Error::Unsupported { what })
}

/// The missing commands, each with some of the keys on which it is missing.
fn named(missing: &[String]) -> String {
    let mut rights: Vec<(&str, Vec<&str>)> = Vec::new();
    for right in missing.chunks_exact(2) {
        match rights.iter_mut().find(|(command, _)| *command == right[0]) {
            Some((_, keys)) => keys.push(&right[1]),
            None => rights.push((&right[0], vec![&right[1]])),
        }
    }
    let shown = rights.into_iter().map(|(command, keys)| {
        let more = keys.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{command} on {}{more}", keys[..keys.len().min(NAMED)].join(", "))
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_rights_of_a_whole_task_are_summarized() {
        let missing = ["LPUSH", "a", "HSET", "b", "HSET", "c", "HSET", "d", "HSET", "e"].map(str::to_owned);
        assert_eq!(named(&missing), "LPUSH on a; HSET on b, c, d and 1 more");
    }
}
