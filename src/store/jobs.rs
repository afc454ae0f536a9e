//! `lua/jobs.lua`: a page of the jobs in one state.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::stored_number;

/// What to look for.
#[derive(Clone, Debug)]
pub(crate) struct PageLook<'a> {
    pub(crate) state: JobState,
    pub(crate) newest_first: bool,
    /// Behind which job; empty to begin.
    pub(crate) cursor: &'a str,
    /// How many jobs to look at.
    pub(crate) count: usize,
    /// The least and the greatest score, ms, of a state that is ordered by one.
    pub(crate) scores: (Option<u64>, Option<u64>),
    pub(crate) code: &'a str,
    /// Text in the JSON of the error, as JSON has it.
    pub(crate) text: &'a str,
}

/// One job of a page.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: JobId,
    /// Its score, or the token of a held one; empty of one that waits.
    pub(crate) stamp: String,
    /// The cursor behind it.
    pub(crate) cursor: String,
    /// The code of its error; empty for none.
    pub(crate) code: String,
    /// The beginning of the message of its error, as JSON has it, and what stands behind it.
    pub(crate) message: String,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) max_count: Option<u32>,
    pub(crate) priority: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) waiting_since_ms: Option<u64>,
    pub(crate) is_candidate: bool,
}

/// A page: the next cursor, empty at the end, how many jobs were looked at, and those that fit.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) next: String,
    pub(crate) looked: usize,
    pub(crate) rows: Vec<Row>,
}

/// Reads a page.
pub(crate) async fn jobs(conn: &mut impl Connection, keys: &TaskKeys, look: &PageLook<'_>) -> Result<Page, Error> {
    let score = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.to_owned(), |ms| ms.to_string());
    let (least, most) = look.scores;
    let mut call = scripts::JOBS.on_place(keys, place_of(look.state));
    call.arg(look.state.as_str()).arg(u8::from(look.newest_first)).arg(look.cursor).arg(look.count);
    call.arg(score(least, "-inf")).arg(score(most, "+inf")).arg(look.code).arg(look.text);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let (Text(next), looked) = (reply.next()?, reply.next()?);
    let rows: Vec<Vec<Text>> = reply.next()?;
    let rows = rows.into_iter().filter_map(|row| {
        let row: [Text; 12] = row.try_into().ok()?;
        let [id, stamp, cursor, code, message, attempt, stalled, max_count, priority, dispatched, since, candidate] =
            row.map(|Text(text)| text);
        Some(Row {
            id: JobId::from_wire(id.as_str()),
            stamp,
            cursor,
            code,
            message,
            failed_attempts: attempt.parse().unwrap_or(0),
            stalled_count: stalled.parse().unwrap_or(0),
            max_count: max_count.parse().ok(),
            priority,
            dispatched_at_ms: stored_number(&dispatched),
            waiting_since_ms: stored_number(&since),
            is_candidate: candidate == "1",
        })
    });
    Ok(Page { next, looked, rows: rows.collect() })
}

/// How many jobs of an ordered state have a score between these, ms.
pub(crate) async fn count_between(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    state: JobState,
    (least, most): (Option<u64>, Option<u64>),
) -> Result<u64, Error> {
    let bound = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.to_owned(), |ms| ms.to_string());
    let mut cmd = redis::cmd("ZCOUNT");
    cmd.arg(keys.get(place_of(state))).arg(bound(least, "-inf")).arg(bound(most, "+inf"));
    cmd.query_async(conn).await.map_err(|e| classify("jobs", e))
}

/// The place of an ordered state; of another one it says nothing.
fn place_of(state: JobState) -> Key {
    match state {
        JobState::Completed => Key::Completed,
        JobState::Failed => Key::Failed,
        JobState::Cancelled => Key::Cancelled,
        JobState::Finalizing => Key::Finalizing,
        JobState::Waiting | JobState::Claimed | JobState::Running | JobState::Delayed => Key::Delayed,
    }
}
