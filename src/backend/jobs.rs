//! Reads jobs: one job (`lua/inspect.lua`), a page of the jobs in one state (`lua/jobs.lua`), and the states of many (`lua/states.lua`).

use redis::Cmd;

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::snooze::Snoozes;
use crate::job::state::JobState;
use crate::limits::stored_number;

/// The state of a job, and the numbers that decide about its next run.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) state: JobState,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) error: String,
    pub(crate) snoozes: Snoozes,
}

/// One job, as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Inspected {
    pub(crate) job: StoredJob,
    /// Its score, or its token while it is held; empty while it waits.
    pub(crate) stamp: String,
    /// JSON of the options set at its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) max_count: Option<u32>,
    /// Empty for the normal priority.
    pub(crate) priority: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) enqueued_at_ms: Option<u64>,
    /// How it was last recovered; empty if it never was.
    pub(crate) recovery: String,
    /// The time before which it must have begun.
    pub(crate) expires_at_ms: Option<u64>,
    /// The reason of its pending cancellation, while it is held; empty for none.
    pub(crate) cancelling: String,
    /// Its progress, as it is stored; empty for none.
    pub(crate) progress: Vec<u8>,
    /// Its stored outcome while its hook has yet to run; empty for none.
    pub(crate) outcome: String,
    /// Empty for none.
    pub(crate) unique_key: String,
    /// Empty for none.
    pub(crate) key: String,
    /// Whether it sent no heartbeat since the snapshot.
    pub(crate) is_candidate: bool,
    pub(crate) payload_bytes: usize,
    pub(crate) result_bytes: usize,
    /// Includes the few bytes that are stored with it.
    pub(crate) checkpoint_bytes: usize,
}

/// Reads a job without its values; `None` if there is none.
pub(crate) async fn inspect(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Inspected>> {
    let mut reply = scripts::INSPECT.on(keys).arg(id).call(conn).await?;
    if reply.next::<String>()? != "found" {
        return Ok(None);
    }
    let state = reply.next::<String>()?.parse()?;
    let stamp = reply.text()?;
    let job = StoredJob {
        state,
        failed_attempts: reply.text()?.parse().unwrap_or(0),
        stalled_count: reply.text()?.parse().unwrap_or(0),
        error: reply.text()?,
        snoozes: Snoozes::from_wire(&reply.text()?),
    };
    Ok(Some(Inspected {
        job,
        stamp,
        overrides: reply.text()?,
        max_count: reply.text()?.parse().ok(),
        priority: reply.text()?,
        dispatched_at_ms: stored_number(&reply.text()?),
        enqueued_at_ms: stored_number(&reply.text()?),
        recovery: reply.text()?,
        expires_at_ms: stored_number(&reply.text()?),
        cancelling: reply.text()?,
        progress: reply.next()?,
        outcome: reply.text()?,
        unique_key: reply.text()?,
        key: reply.text()?,
        is_candidate: reply.next::<u8>()? == 1,
        payload_bytes: reply.next()?,
        result_bytes: reply.next()?,
        checkpoint_bytes: reply.next()?,
    }))
}

/// Which jobs a page has.
#[derive(Clone, Debug)]
pub(crate) struct PageLook<'a> {
    pub(crate) state: JobState,
    pub(crate) newest_first: bool,
    /// The job after which it begins; empty for the first page.
    pub(crate) cursor: &'a str,
    pub(crate) count: usize,
    /// The lowest and the highest score, ms, for a state that has scores.
    pub(crate) scores: (Option<u64>, Option<u64>),
    pub(crate) code: &'a str,
    /// Text in the message of the error, escaped as in JSON.
    pub(crate) text: &'a str,
}

/// One job of a page.
#[derive(Debug)]
pub(crate) struct PageRow {
    pub(crate) id: JobId,
    /// Its score, or its token while it is held; empty while it waits.
    pub(crate) stamp: String,
    /// The cursor after it.
    pub(crate) cursor: String,
    /// The code of its error; empty for none.
    pub(crate) code: String,
    /// The beginning of its error from the message on, escaped as in JSON.
    pub(crate) message: String,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) max_count: Option<u32>,
    pub(crate) priority: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) enqueued_at_ms: Option<u64>,
    pub(crate) is_candidate: bool,
}

/// A page: the next cursor (empty at the end), how many jobs were read, and those that match.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) next: String,
    pub(crate) looked: usize,
    pub(crate) rows: Vec<PageRow>,
}

pub(crate) async fn jobs(conn: &mut impl Connection, keys: &TaskKeys, look: &PageLook<'_>) -> Result<Page> {
    let score = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.to_owned(), |ms| ms.to_string());
    let (least, most) = look.scores;
    let mut call = scripts::JOBS.on_place(keys, place_of(look.state));
    call.arg(look.state.as_str()).arg(u8::from(look.newest_first)).arg(look.cursor).arg(look.count);
    call.arg(score(least, "-inf")).arg(score(most, "+inf")).arg(look.code).arg(look.text);
    let mut reply = call.answer(conn).await?;
    let (Text(next), looked) = (reply.next()?, reply.next()?);
    let rows: Vec<Vec<Text>> = reply.next()?;
    let rows = rows.into_iter().filter_map(|row| {
        let row: [Text; 12] = row.try_into().ok()?;
        let [id, stamp, cursor, code, message, attempt, stalled, max_count, priority, dispatched, since, candidate] =
            row.map(|Text(text)| text);
        Some(PageRow {
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
            enqueued_at_ms: stored_number(&since),
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
) -> Result<u64> {
    let bound = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.to_owned(), |ms| ms.to_string());
    Cmd::zcount(keys.get(place_of(state)), bound(least, "-inf"), bound(most, "+inf")).call(conn, "jobs").await
}

/// The sorted set of an ordered state. The others ignore it.
fn place_of(state: JobState) -> Key {
    match state {
        JobState::Completed => Key::Completed,
        JobState::Failed => Key::Failed,
        JobState::Cancelled => Key::Cancelled,
        JobState::Finalizing => Key::Finalizing,
        JobState::Waiting | JobState::Claimed | JobState::Running | JobState::Delayed => Key::Delayed,
    }
}

/// The states of jobs.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Whether the workers of the task write its events; `None` if no worker has declared it.
    pub(crate) events: Option<bool>,
    /// The state of each job, and the size of its result in bytes; `None` if there is no such job.
    pub(crate) jobs: Vec<Option<(JobState, usize)>>,
}

/// Reads the states of at most `LOOK_BATCH` jobs. Reads no value.
pub(crate) async fn states(conn: &mut impl Connection, keys: &TaskKeys, ids: &[JobId]) -> Result<Looked> {
    let mut reply = scripts::STATES.on(keys).args(ids.iter().map(JobId::as_str)).answer(conn).await?;
    let mode: String = reply.next()?;
    let (states, bytes): (Vec<String>, Vec<usize>) = (reply.next()?, reply.next()?);
    let jobs = states.iter().zip(bytes).map(|(state, bytes)| match state.as_str() {
        "unknown" => Ok(None),
        state => Ok(Some((state.parse()?, bytes))),
    });
    let jobs = jobs.collect::<Result<_>>()?;
    Ok(Looked { events: (!mode.is_empty()).then(|| mode != "off"), jobs })
}
