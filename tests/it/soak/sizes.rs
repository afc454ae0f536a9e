//! What the server holds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::REPORT;
use crate::support::{PATIENCE, TestRedis, eventually};

/// The report of the working process, if it has ended. The server may be restarting.
pub async fn report(url: &str) -> Option<String> {
    let client = redis::Client::open(url).ok()?;
    let mut conn = client.get_multiplexed_async_connection().await.ok()?;
    redis::cmd("GET").arg(REPORT).query_async(&mut conn).await.ok()?
}

pub async fn write_report(url: &str, report: &str) {
    let mut conn = TestRedis::conn_to(url).await;
    let () = redis::cmd("SET").arg(REPORT).arg(report).query_async(&mut conn).await.unwrap();
}

/// The bytes of each key of the prefix, and the memory that the server uses. The ids of workers are left out of names.
pub async fn sizes(url: &str, prefix: &str) -> (BTreeMap<String, u64>, u64) {
    eventually("the server answers until all is read", PATIENCE, async || read(url, prefix).await.ok()).await
}

/// Fails if the server restarts.
async fn read(url: &str, prefix: &str) -> redis::RedisResult<(BTreeMap<String, u64>, u64)> {
    let client = redis::Client::open(url)?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
    let mut conn = client.get_multiplexed_async_connection_with_config(&config).await?;
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("{prefix}:*")).query_async(&mut conn).await?;
    let mut sizes = BTreeMap::new();
    for key in keys {
        let mut usage = redis::cmd("MEMORY");
        let bytes: Option<u64> = usage.arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query_async(&mut conn).await?;
        let name = match key.split_once(":worker:") {
            Some((start, _)) => format!("{start}:worker:"),
            None => key,
        };
        *sizes.entry(name).or_default() += bytes.unwrap_or(0);
    }
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query_async(&mut conn).await?;
    Ok((sizes, info.get("used_memory").unwrap_or(0)))
}

/// Whether a key does not exist. The server may be restarting.
pub async fn is_gone(url: &str, key: &str) -> Option<bool> {
    let client = redis::Client::open(url).ok()?;
    let mut conn = client.get_multiplexed_async_connection().await.ok()?;
    redis::cmd("EXISTS").arg(key).query_async(&mut conn).await.ok().map(|exists: bool| !exists)
}
