//! What an act says of each job that it named.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::reply::Reply;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::stored_number;

/// A job that an act names. With a stamp, the job must still stand where it stood when it had that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) id: JobId,
    /// The score or the token that it had, or `=` and its state; empty for any.
    pub(crate) stamp: String,
}

/// Where a job stood, and when it was dispatched: another one may have its id later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stood {
    /// `None` where there was none.
    pub(crate) state: Option<JobState>,
    pub(crate) dispatched_at_ms: Option<u64>,
}

impl Named {
    /// The job as long as it stands where it stood.
    pub(crate) fn as_stood(id: JobId, Stood { state, dispatched_at_ms }: Stood) -> Named {
        let dispatched = dispatched_at_ms.map_or_else(String::new, |ms| format!("@{ms}"));
        Named { id, stamp: format!("={}{dispatched}", state.map_or("unknown", JobState::as_str)) }
    }

    /// The job wherever it stands.
    pub(crate) fn anywhere(id: JobId) -> Named {
        Named { id, stamp: String::new() }
    }
}

/// When the jobs were dispatched, ms by the clocks of those who did; `None` of those of which that is not known.
pub(crate) async fn dispatched_at(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<u64>>, Error> {
    times(conn, keys.get(Key::DispatchedAt), ids).await
}

/// Since when the jobs wait that were put back, or were delayed, ms; `None` of others.
pub(crate) async fn waiting_since(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[JobId],
) -> Result<Vec<Option<u64>>, Error> {
    times(conn, keys.get(Key::WaitingSince), ids).await
}

async fn times(conn: &mut impl Connection, column: &str, ids: &[JobId]) -> Result<Vec<Option<u64>>, Error> {
    let mut cmd = redis::cmd("HMGET");
    cmd.arg(column);
    for id in ids {
        cmd.arg(id.as_str());
    }
    let found: Vec<Option<String>> = cmd.query_async(conn).await.map_err(|e| classify("column", e))?;
    Ok(found.into_iter().map(|ms| stored_number(&ms?)).collect())
}

/// What an act says of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was done.
    Done,
    /// The worker that holds the job was asked to.
    Requested,
    /// It stands in a state of which the act takes none.
    Stands(JobState),
    /// It does not stand any more where it stood.
    Changed,
    /// There is no such job.
    Unknown,
    /// It was too much for one call, and is to be named again.
    Left,
}

/// Reads the answer of an act; `done` is its word for a job with which it was done.
pub(super) fn told(reply: &mut Reply, done: &str) -> Result<Vec<Told>, Error> {
    let _: String = reply.next()?;
    let words: Vec<String> = reply.rest()?;
    let read = |word: &String| match word.as_str() {
        word if word == done => Ok(Told::Done),
        "requested" => Ok(Told::Requested),
        "changed" => Ok(Told::Changed),
        "unknown" => Ok(Told::Unknown),
        "left" => Ok(Told::Left),
        state => Ok(Told::Stands(state.parse()?)),
    };
    words.iter().map(read).collect()
}
