//! What must be true of the server before anything is written to it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{InfoDict, RedisResult};

use super::connection::{Connection, OwnConnection};
use super::fault::classify;
use super::streams::server_time_ms;
use crate::error::Error;

/// The oldest server that has every command the scripts use (SMISMEMBER, ZMSCORE, XTRIM with MINID).
const OLDEST: (u32, u32) = (6, 2);

/// The oldest one whose cluster does what is needed (scripts that publish, `CLUSTER SLOTS` with host names).
const OLDEST_CLUSTER: (u32, u32) = (7, 0);

/// Whether a server whose eviction policy could throw jobs away is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionCheck {
    Refuse,
    Accept,
}

/// Checks the server's version and its eviction policy.
///
/// # Errors
/// `Unsupported` with what is wrong; `Connect` when the server cannot be asked.
pub(crate) async fn check(conn: &mut impl Connection, eviction: EvictionCheck, is_cluster: bool) -> Result<(), Error> {
    let ask = |section: &'static str| {
        let mut cmd = redis::cmd("INFO");
        cmd.arg(section);
        cmd
    };
    let server: InfoDict = ask("server").query_async(conn).await.map_err(|e| classify("info", e))?;
    // Valkey has another word for it.
    let mode = server.get::<String>("redis_mode").or_else(|| server.get::<String>("server_mode")).unwrap_or_default();
    if mode == "sentinel" {
        let what =
            "that is a sentinel, which holds no data: write redis-sentinel://host:26379?sentinelServiceName=name";
        return Err(Error::Unsupported { what: what.to_owned() });
    }
    if (mode == "cluster") != is_cluster {
        let what = match is_cluster {
            true => "that is no node of a cluster: write redis://host:port",
            false => "that is a node of a cluster: write redis-cluster://host:port",
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
    let memory: InfoDict = ask("memory").query_async(conn).await.map_err(|e| classify("info", e))?;
    let policy = memory.get::<String>("maxmemory_policy").unwrap_or_default();
    if policy.starts_with("allkeys-") && eviction == EvictionCheck::Refuse {
        return Err(Error::Unsupported {
            what: format!(
                "the server's maxmemory-policy is {policy}, which throws whole columns of jobs away; set it to \
                 noeviction, or accept the risk with AppBuilder::accept_eviction"
            ),
        });
    }
    Ok(())
}

/// What the server says of itself.
#[derive(Debug)]
pub(crate) struct ServerLook {
    pub(crate) info: InfoDict,
    /// Its clock, ms since 1970.
    pub(crate) now_ms: u64,
    /// How long each of some short calls took.
    pub(crate) round_trips: Vec<Duration>,
    /// What it says to a write, if it refuses that.
    pub(crate) refusal: Option<String>,
    /// How many replicas it wants to take writes, if it wants any.
    pub(crate) wanted_replicas: Option<u64>,
}

/// What a write is answered that this user may not make, or that meets something foreign, or a slot on its way: others may be taken.
const NOT_OF_THE_SERVER: [&str; 5] = ["NOPERM", "WRONGTYPE", "MOVED", "ASK", "TRYAGAIN"];

/// How many short calls are timed.
const TIMED: usize = 9;

/// How long the short calls are timed, where each takes long.
const TIMED_FOR: Duration = Duration::from_secs(1);

/// How long each answer of a node of a cluster may take: one that is away keeps no other from being told of.
const NODE_PATIENCE: Duration = Duration::from_secs(2);

/// Asks each server about itself: the one that there is, or every primary of a cluster, by its place. `keys` are sorted sets of ours, of which
/// each server is to have one.
///
/// # Errors
/// What the one says that there is; of a cluster, where none answers, what the last one says.
pub(crate) async fn look_at_all(
    conn: &OwnConnection,
    keys: &[String],
) -> Result<Vec<(String, Result<ServerLook, Error>)>, Error> {
    let places = conn.places();
    let is_alone = !conn.is_routed();
    let looks = places.into_iter().map(|place| async move {
        let patience = (!is_alone).then_some(NODE_PATIENCE);
        let looked = async {
            let conn = in_time(patience, conn.at_place(&place)).await?;
            look(&mut conn.map_err(|e| classify("info", e))?, keys, patience).await
        };
        let looked = looked.await.map_err(|e| match patience {
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

/// Waits for an answer for so long.
async fn in_time<T>(patience: Option<Duration>, answer: impl Future<Output = T>) -> Result<T, Error> {
    match patience {
        Some(patience) => tokio::time::timeout(patience, answer).await.map_err(|_| Error::timed_out()),
        None => Ok(answer.await),
    }
}

/// Asks the server about itself, and whether it takes a write: one to a key of ours that it has, which changes nothing.
async fn look(conn: &mut OwnConnection, keys: &[String], patience: Option<Duration>) -> Result<ServerLook, Error> {
    let info: RedisResult<InfoDict> = in_time(patience, redis::cmd("INFO").query_async(conn)).await?;
    let info = info.map_err(|e| classify("info", e))?;
    let (mut round_trips, mut now_ms, timed_from) = (Vec::with_capacity(TIMED), 0, Instant::now());
    while round_trips.len() < TIMED && (round_trips.is_empty() || timed_from.elapsed() < TIMED_FOR) {
        let begun = Instant::now();
        now_ms = in_time(patience, server_time_ms(conn)).await??;
        round_trips.push(begun.elapsed());
    }
    let written = match keys.iter().find(|key| conn.has(key)) {
        Some(key) => in_time(patience, redis::cmd("ZREM").arg(key).arg("").query_async::<()>(conn)).await?,
        None => Ok(()),
    };
    let refused =
        written.err().filter(|e| !e.is_io_error() && !NOT_OF_THE_SERVER.contains(&e.code().unwrap_or_default()));
    let mut refusal = refused.map(|e| e.to_string());
    if refusal.is_none() && info.get::<u8>("cluster_enabled") == Some(1) {
        // One that has no key of ours has nothing to refuse. Whether it may be asked or not, it is asked.
        let mut ask = redis::cmd("CLUSTER");
        let state = in_time(patience, ask.arg("INFO").query_async::<String>(conn)).await?.unwrap_or_default();
        refusal = state.contains("cluster_state:fail").then(|| "CLUSTERDOWN The cluster is down".to_owned());
    }
    let wanted_replicas = in_time(patience, wanted_replicas(conn, &info)).await?;
    Ok(ServerLook { info, now_ms, round_trips, refusal, wanted_replicas })
}

/// How many replicas must follow for a write to be taken. `INFO` counts them where any must; how many is a setting, which not everybody may ask
/// for.
async fn wanted_replicas(conn: &mut OwnConnection, info: &InfoDict) -> Option<u64> {
    info.get::<String>("min_slaves_good_slaves")?;
    let mut ask = redis::cmd("CONFIG");
    let told = ask.arg("GET").arg("min-replicas-to-write").query_async::<HashMap<String, u64>>(conn).await;
    Some(told.ok().and_then(|told| told.into_values().next()).unwrap_or(1))
}
