//! Payloads, results and errors. They are read by plain commands: through a script the server would copy them several times.

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::subgraph_result::value_of;
use crate::limits::{NARROW_BYTES, stored_number};

/// Where a value is that a script did not copy, and its size.
#[derive(Clone, Debug)]
pub(crate) struct ValuePlace {
    pub(crate) column: Key,
    pub(crate) field: String,
    pub(crate) bytes: usize,
}

impl ValuePlace {
    /// Whether every server can send it.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes <= NARROW_BYTES
    }
}

/// The payload of a job; `None` if the job is gone.
pub(crate) async fn payload(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>> {
    value(conn, keys, Key::Payload, id).await
}

/// The value of a completed job; `None` if none is stored.
pub(crate) async fn result(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>> {
    Ok(value(conn, keys, Key::Result, id).await?.and_then(without_graph))
}

/// The value in a result. A node's job may also have returned a graph in it.
pub(crate) fn without_graph(result: Vec<u8>) -> Option<Vec<u8>> {
    let value = value_of(&result);
    if value.len() == result.len() { Some(result) } else { Some(value.to_vec()).filter(|value| !value.is_empty()) }
}

pub(crate) async fn value(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    column: Key,
    id: &str,
) -> Result<Option<Vec<u8>>> {
    redis::cmd("HGET").arg(keys.get(column)).arg(id).call(conn, "value").await
}

/// Several values of one task or workflow, in order; `None` for those that do not exist.
pub(crate) async fn many<'a>(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    places: impl Iterator<Item = &'a ValuePlace>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut pipe = redis::pipe();
    for ValuePlace { column, field, .. } in places {
        pipe.hget(keys.get(*column), field);
    }
    pipe.call(conn, "value").await
}

pub(crate) async fn results(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<Vec<u8>>>> {
    let results: Vec<Option<Vec<u8>>> = columns(conn, keys.get(Key::Result), ids).await?;
    Ok(results.into_iter().map(|result| result.and_then(without_graph)).collect())
}

/// The failed runs, the stalls and the error of jobs that did not complete, in order.
pub(crate) async fn failures(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<(u32, u32, String)>> {
    let number = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    let attempts = texts(conn, keys, Key::Attempt, ids).await?.into_iter().map(number);
    let stalls = texts(conn, keys, Key::StalledCount, ids).await?.into_iter().map(number);
    let errors = texts(conn, keys, Key::Error, ids).await?.into_iter().map(Option::unwrap_or_default);
    Ok(attempts.zip(stalls).zip(errors).map(|((attempts, stalls), error)| (attempts, stalls, error)).collect())
}

pub(super) async fn columns<T: redis::FromRedisValue>(
    conn: &mut impl Connection,
    column: &str,
    ids: &[JobId],
) -> Result<Vec<T>> {
    let ids: Vec<&str> = ids.iter().map(JobId::as_str).collect();
    redis::cmd("HMGET").arg(column).arg(ids).call(conn, "value").await
}

/// A column of these jobs as texts that another program may have written, in order.
async fn texts(conn: &mut impl Connection, keys: &TaskKeys, column: Key, ids: &[JobId]) -> Result<Vec<Option<String>>> {
    let found: Vec<Option<Text>> = columns(conn, keys.get(column), ids).await?;
    Ok(found.into_iter().map(|text| text.map(|Text(text)| text)).collect())
}

/// The fences under which jobs were claimed ahead, in order; `None` for others. A fence is valid while the lock has the same one.
pub(crate) async fn claimed(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<Option<u64>>> {
    Ok(texts(conn, keys, Key::Claimed, ids).await?.into_iter().map(|fence| fence?.parse().ok()).collect())
}

/// The marks of parked jobs, in order; `None` for others. A mark is valid while the job is held under its fence and phase.
pub(crate) async fn marks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<ParkedMark>>> {
    Ok(texts(conn, keys, Key::Parked, ids).await?.into_iter().map(|mark| ParkedMark::parse(&mark?)).collect())
}

/// The mark of a job that a sweep has parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkedMark {
    /// The fence under which it was held.
    pub(crate) fence: u64,
    /// `claimed`, `running` or `finalizing`.
    pub(crate) phase: String,
    /// Since when it was silent, ms.
    pub(crate) since_ms: u64,
}

impl ParkedMark {
    fn parse(mark: &str) -> Option<ParkedMark> {
        let mut words = mark.split(' ');
        let (fence, phase, since) = (words.next()?, words.next()?, words.next()?);
        Some(ParkedMark { fence: fence.parse().ok()?, phase: phase.to_owned(), since_ms: stored_number(since)? })
    }
}

/// Which of the jobs have a stored outcome, in order.
pub(crate) async fn finalizing(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<bool>> {
    Ok(texts(conn, keys, Key::Outcome, ids).await?.iter().map(Option::is_some).collect())
}

/// The tokens of held jobs, in order; `None` for others.
pub(crate) async fn tokens(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Vec<Option<String>>> {
    texts(conn, keys, Key::Locks, ids).await
}

/// When the jobs were dispatched, ms by the dispatchers' clocks; `None` if unknown.
pub(crate) async fn dispatched_at(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<u64>>> {
    times(conn, keys.get(Key::DispatchedAt), ids).await
}

/// When jobs that were requeued or delayed began to wait, ms; `None` for others.
pub(crate) async fn enqueued_at(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<u64>>> {
    times(conn, keys.get(Key::EnqueuedAt), ids).await
}

async fn times(conn: &mut impl Connection, column: &str, ids: &[JobId]) -> Result<Vec<Option<u64>>> {
    let found: Vec<Option<String>> = columns(conn, column, ids).await?;
    Ok(found.into_iter().map(|ms| stored_number(&ms?)).collect())
}
