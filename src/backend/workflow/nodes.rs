//! Reads the nodes of an instance: pages of them (`lua/flow_nodes.lua`), their states and values, and its graph.

use crate::backend::connection::Connection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::reply::{PlainCall, Text};
use crate::backend::scripts;
use crate::error::Result;
use crate::limits::{stored_number, stored_score};

#[derive(Debug)]
pub(crate) struct NodePage {
    pub(crate) run: u64,
    pub(crate) count: u32,
    /// Their states, see `docs/wire-format.md`.
    pub(crate) states: Vec<String>,
}

pub(crate) const NODE_PAGE: u32 = 500;

/// The nodes from this number on; `None` if there is no such instance.
pub(crate) async fn nodes(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    from: u32,
) -> Result<Option<NodePage>> {
    let mut reply = scripts::FLOW_NODES.on(keys).arg(instance).arg(from).arg(NODE_PAGE).call(conn).await?;
    if reply.next::<String>()? != "nodes" {
        return Ok(None);
    }
    Ok(Some(NodePage { run: reply.next()?, count: reply.next()?, states: reply.texts()? }))
}

/// The JSON of a shape, see `docs/wire-format.md`; `None` if it is missing.
pub(crate) async fn shape(conn: &mut impl Connection, keys: &TaskKeys, digest: &str) -> Result<Option<Vec<u8>>> {
    redis::cmd("HGET").arg(keys.get(Key::Shapes)).arg(digest).call(conn, "shapes").await
}

/// The digest of an instance's shape; `None` if there is no such instance.
pub(crate) async fn digest(conn: &mut impl Connection, keys: &TaskKeys, instance: &str) -> Result<Option<String>> {
    let head: Option<Text> =
        redis::cmd("HGET").arg(keys.get(Key::Instances)).arg(instance).call(conn, "instances").await?;
    Ok(head.and_then(|Text(head)| head.split(' ').nth(4).map(str::to_owned)))
}

/// When the jobs of each instance may run first, ms: its start plus its delay. `None` if unknown.
pub(crate) async fn begins(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instances: &[&str],
) -> Result<Vec<Option<u64>>> {
    let heads: Vec<Option<Text>> =
        redis::cmd("HMGET").arg(keys.get(Key::Instances)).arg(instances).call(conn, "instances").await?;
    let due =
        |head: Option<Text>| head.and_then(|Text(head)| stored_number(head.split(' ').nth(6)?).filter(|ms| *ms > 0));
    Ok(heads.into_iter().map(due).collect())
}

/// When an instance began or will begin, and since when it is in its place, ms. `None` for what is unknown.
pub(crate) async fn times(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    place: Key,
) -> Result<(Option<u64>, Option<u64>)> {
    let begins = begins(conn, keys, &[instance]).await?.pop().flatten();
    let since: Option<f64> = redis::cmd("ZSCORE").arg(keys.get(place)).arg(instance).call(conn, "place").await?;
    Ok((begins, since.map(stored_score)))
}

/// The values or failures of these nodes, in order; `None` for those that have none.
pub(crate) async fn values(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    nodes: &[u32],
) -> Result<Vec<Option<Vec<u8>>>> {
    of_nodes(conn, keys.get(Key::Value), instance, nodes).await
}

/// The states of these nodes, in order.
pub(crate) async fn states(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    nodes: &[u32],
) -> Result<Vec<Option<String>>> {
    of_nodes(conn, keys.get(Key::Nodes), instance, nodes).await
}

async fn of_nodes<T: redis::FromRedisValue>(
    conn: &mut impl Connection,
    key: &str,
    instance: &str,
    nodes: &[u32],
) -> Result<Vec<T>> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let fields: Vec<String> = nodes.iter().map(|node| format!("{instance}/{node}")).collect();
    redis::cmd("HMGET").arg(key).arg(fields).call(conn, "nodes").await
}
