//! `lua/declare.lua`: writes the options of a task.

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::PlainCall;
use super::scripts;
use crate::error::{Error, Result};
use crate::options::resolved::Resolved;
use crate::unix_time::to_ms;

/// The version of keys, fields and scripts that this crate speaks. A task that a newer version wrote is refused.
pub(crate) const WIRE_VERSION: u32 = 1;

/// The declared options of a task.
#[derive(Debug)]
pub(crate) enum Declared {
    /// Those of this caller: when it started, and what changed, as name, old value, new value.
    Ours(u64, Vec<(String, String, String)>),
    /// Those of a worker that started later, at this time of the server, ms.
    Theirs(u64),
}

/// Writes a task's options for the scripts. `stamp` is the time that the worker got at its start; with `None` the
/// worker starts now.
pub(crate) async fn declare(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    stamp: Option<u64>,
    options: &Resolved,
) -> Result<Declared> {
    let mut call = scripts::DECLARE.on(keys);
    call.arg(WIRE_VERSION).arg(stamp.map(|stamp| stamp.to_string()).unwrap_or_default()).arg(worker);
    call.arg("maxCount").arg(options.max_count);
    call.arg("maxCountSet").arg(if options.max_count_set { "1" } else { "0" });
    call.arg("onCrash").arg(options.on_crash.as_str());
    // A sweep needs the policy to decide when the job of a dead worker runs again.
    call.arg("retry").arg(serde_json::to_string(&options.retry).unwrap_or_default());
    call.arg("grace").arg(options.grace.to_string());
    call.arg("heartbeat").arg(options.heartbeat.as_str());
    call.arg("limits").arg(options.limits.to_string());
    call.arg("key").arg(options.keyed.pointer.unwrap_or_default());
    call.arg("perKey").arg(options.keyed.limits.to_string());
    call.arg("eventMode").arg(options.events.as_str());
    // Says to a dispatch that its jobs need keys.
    let keyed = if options.keyed.pointer.is_some() { " keyed" } else { "" };
    call.arg("priority").arg(format!("{}{keyed}", options.priority));
    let text = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    // The script does not store a single partition, so naming it would report a change at each start. The options below
    // are only for people.
    if keys.parts() > 1 {
        call.arg("partitions").arg(keys.parts());
    }
    call.arg("concurrency").arg(options.concurrency);
    call.arg("prefetch").arg(options.prefetch.to_string());
    call.arg("hook").arg(if options.has_hook { "1" } else { "0" });
    call.arg("attempts").arg(options.retry.max_attempts());
    call.arg("timeoutMs").arg(text(options.timeout.map(to_ms)));
    let keep = &options.retention;
    for (place, limit) in [("Completed", keep.completed), ("Failed", keep.failed), ("Cancelled", keep.cancelled)] {
        call.arg(format!("keep{place}")).arg(if limit.remove_at_once { "0" } else { "1" });
        call.arg(format!("maxAge{place}")).arg(text(limit.max_age_ms));
        call.arg(format!("maxCount{place}")).arg(text(limit.max_count));
    }
    let mut reply = call.call(conn).await?;
    let word: String = reply.next()?;
    let stamp = reply.next()?;
    if word == "kept" {
        return Ok(Declared::Theirs(stamp));
    }
    let words: Vec<String> = reply.next()?;
    let changed = words.chunks_exact(3).map(|c| (c[0].clone(), c[1].clone(), c[2].clone())).collect();
    Ok(Declared::Ours(stamp, changed))
}

/// Writes the options of a task again if the server lost them, unless a worker that started later has declared its own.
/// Returns whether they are in force.
pub(crate) async fn declare_again(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    stamp: u64,
    options: &Resolved,
) -> Result<bool> {
    Ok(matches!(declare(conn, keys, worker, Some(stamp), options).await?, Declared::Ours(..)))
}

/// How many partitions the task has; `None` if nothing of the task was written yet.
///
/// # Errors
/// `Unsupported` if a newer version of this crate wrote the task.
pub(crate) async fn written_partitions(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<u32>> {
    let (wire, partitions): (Option<String>, Option<u32>) =
        redis::cmd("HMGET").arg(keys.get(Key::Meta)).arg("wire").arg("partitions").call(conn, "declare").await?;
    match wire.as_deref().and_then(|wire| wire.parse().ok()) {
        Some(wire) if wire > WIRE_VERSION => {
            Err(Error::Unsupported { what: format!("the task was written by wire version {wire}") })
        }
        wire => Ok(partitions.or(wire.map(|_: u32| 1))),
    }
}
