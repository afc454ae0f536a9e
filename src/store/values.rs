//! Payloads, results and errors, read by plain commands: through a script the server would copy them several times.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use crate::error::Error;
use crate::job::grown::value_of;
use crate::limits::stored_number;

/// The payload of a job; `None` when the job is gone.
pub(crate) async fn payload(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>, Error> {
    value(conn, keys, Key::Payload, id).await
}

/// The value of a completed job; `None` when none is kept.
pub(crate) async fn result(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>, Error> {
    Ok(value(conn, keys, Key::Result, id).await?.and_then(without_graph))
}

/// The value in a result, of which a node's job may have returned a graph beside it.
fn without_graph(result: Vec<u8>) -> Option<Vec<u8>> {
    let value = value_of(&result);
    if value.len() == result.len() { Some(result) } else { Some(value.to_vec()).filter(|value| !value.is_empty()) }
}

/// What a column has of a job. Read by a plain command: through a script the server would copy it several times.
pub(crate) async fn value(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    column: Key,
    id: &str,
) -> Result<Option<Vec<u8>>, Error> {
    redis::cmd("HGET").arg(keys.get(column)).arg(id).query_async(conn).await.map_err(|e| classify("value", e))
}

/// The values of completed jobs, in their order.
pub(crate) async fn results(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let results: Vec<Option<Vec<u8>>> = columns(conn, keys.get(Key::Result), ids).await?;
    Ok(results.into_iter().map(|result| result.and_then(without_graph)).collect())
}

/// Of jobs that did not complete, in their order: the failed runs, the stalls and the error.
pub(crate) async fn failures(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<(u32, u32, String)>, Error> {
    let number = |text: Option<Text>| text.and_then(|Text(text)| text.parse().ok()).unwrap_or(0);
    let attempts: Vec<Option<Text>> = columns(conn, keys.get(Key::Attempt), ids).await?;
    let stalls: Vec<Option<Text>> = columns(conn, keys.get(Key::StalledCount), ids).await?;
    let errors: Vec<Option<Text>> = columns(conn, keys.get(Key::Error), ids).await?;
    let errors = errors.into_iter().map(|error| error.map_or_else(String::new, |Text(error)| error));
    Ok(attempts.into_iter().zip(stalls).zip(errors).map(|((a, s), error)| (number(a), number(s), error)).collect())
}

pub(super) async fn columns<T: redis::FromRedisValue>(
    conn: &mut impl Connection,
    column: &str,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<T>, Error> {
    let mut cmd = redis::cmd("HMGET");
    cmd.arg(column);
    for id in ids {
        cmd.arg(id.as_str());
    }
    cmd.query_async(conn).await.map_err(|e| classify("value", e))
}

/// The fences under which jobs were claimed ahead, in their order; `None` of the others. One counts under the fence of the lock.
pub(crate) async fn claimed(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<Option<u64>>, Error> {
    let fences: Vec<Option<Text>> = columns(conn, keys.get(Key::Claimed), ids).await?;
    Ok(fences.into_iter().map(|fence| fence.and_then(|Text(fence)| fence.parse().ok())).collect())
}

/// What is written of jobs that a sweep set aside, in their order; `None` of the others. It counts for as long as the job is held as it
/// tells.
pub(crate) async fn marks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<Option<AsideMark>>, Error> {
    let marks: Vec<Option<Text>> = columns(conn, keys.get(Key::Aside), ids).await?;
    Ok(marks.into_iter().map(|mark| mark.and_then(|Text(mark)| AsideMark::parse(&mark))).collect())
}

/// The mark of a job that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AsideMark {
    /// The fence under which it was held.
    pub(crate) fence: u64,
    /// `claimed`, `running` or `finalizing`.
    pub(crate) phase: String,
    /// Since when it was silent, ms.
    pub(crate) since_ms: u64,
}

impl AsideMark {
    fn parse(mark: &str) -> Option<AsideMark> {
        let mut words = mark.split(' ');
        let (fence, phase, since) = (words.next()?, words.next()?, words.next()?);
        Some(AsideMark { fence: fence.parse().ok()?, phase: phase.to_owned(), since_ms: stored_number(since)? })
    }
}

/// Which of the jobs have an outcome that is stored, in their order.
pub(crate) async fn finalizing(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<bool>, Error> {
    let outcomes: Vec<Option<Text>> = columns(conn, keys.get(Key::Outcome), ids).await?;
    Ok(outcomes.iter().map(Option::is_some).collect())
}

/// The tokens of held jobs, in their order; `None` of one that nobody holds.
pub(crate) async fn tokens(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Vec<Option<String>>, Error> {
    let tokens: Vec<Option<Text>> = columns(conn, keys.get(Key::Locks), ids).await?;
    Ok(tokens.into_iter().map(|token| token.map(|Text(token)| token)).collect())
}
