//! What people do to jobs (`lua/cancel.lua`, `retry.lua`, `remove.lua`, `run_now.lua`) and to a task (`lua/pause.lua`,
//! `resume.lua`, `forget.lua`).

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts::{self, Invocation};
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::stored_number;

/// A job that an action names. With a stamp, the action applies only if the job is still in the state that the stamp
/// describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) id: JobId,
    /// Its score or its token, or `=` and its state; empty for any state.
    pub(crate) stamp: String,
}

/// The state of a job, and when it was dispatched: a later job may have the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenState {
    /// `None` if there was no job.
    pub(crate) state: Option<JobState>,
    pub(crate) dispatched_at_ms: Option<u64>,
}

impl Named {
    /// The job, if it is still in this state.
    pub(crate) fn if_unchanged(id: JobId, SeenState { state, dispatched_at_ms }: SeenState) -> Named {
        let dispatched = dispatched_at_ms.map_or_else(String::new, |ms| format!("@{ms}"));
        Named { id, stamp: format!("={}{dispatched}", state.map_or("unknown", JobState::as_str)) }
    }

    /// The job in any state.
    pub(crate) fn anywhere(id: JobId) -> Named {
        Named { id, stamp: String::new() }
    }
}

/// What an action did to one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActionReply {
    Done,
    /// The worker that holds the job was asked to cancel it.
    Requested,
    /// Nothing: the action does not apply to this state.
    InState(JobState),
    /// Nothing: the job is no longer in the state that its stamp describes.
    Changed,
    /// There is no such job.
    Unknown,
    /// Nothing: this job has the unique key of the named one.
    Duplicate(JobId),
    /// Nothing: the call had reached its limit, so the caller names the job again.
    Left,
}

/// Cancels waiting and delayed jobs, and asks the workers that hold the others to cancel them; at most `BATCH` jobs.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    reason: &str,
    by: &str,
) -> Result<Vec<ActionReply>> {
    // In the scripts, an empty reason means that no cancel was requested.
    let reason = if reason.trim().is_empty() { "no reason was given" } else { reason };
    let mut call = scripts::CANCEL.on(keys);
    // For a job that was cancelled before, the script answers `cancelled`.
    apply(conn, call.arg(reason).arg(keys.cancel_channel()).arg(by), jobs, "ended").await
}

/// Puts failed and cancelled jobs back into their lists; at most `BATCH` jobs. With `anyway`, a job whose unique key another job has runs
/// without the key.
pub(crate) async fn retry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    by: &str,
    anyway: bool,
) -> Result<Vec<ActionReply>> {
    apply(conn, scripts::RETRY.on(keys).arg(by).arg(u8::from(anyway)), jobs, "retried").await
}

/// Removes jobs that no worker holds; at most `BATCH` jobs.
pub(crate) async fn remove(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    by: &str,
) -> Result<Vec<ActionReply>> {
    apply(conn, scripts::REMOVE.on(keys).arg(by), jobs, "removed").await
}

/// Moves delayed jobs to the front of their lists; at most `BATCH` jobs.
pub(crate) async fn run_now(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    by: &str,
) -> Result<Vec<ActionReply>> {
    apply(conn, scripts::RUN_NOW.on(keys).arg(by), jobs, "promoted").await
}

/// Adds the jobs to the call, and makes it. `done` is the word with which the script reports that it applied the action
/// to a job.
async fn apply(
    conn: &mut impl Connection,
    call: &mut Invocation,
    jobs: &[Named],
    done: &str,
) -> Result<Vec<ActionReply>> {
    let named = jobs.iter().map(|job| (job.id.as_str(), &job.stamp));
    let words: Vec<String> = call.args(named).answer(conn).await?.rest()?;
    let read = |word: &String| match word.as_str() {
        word if word == done => Ok(ActionReply::Done),
        "requested" => Ok(ActionReply::Requested),
        "changed" => Ok(ActionReply::Changed),
        "unknown" => Ok(ActionReply::Unknown),
        "left" => Ok(ActionReply::Left),
        state => match state.strip_prefix("duplicate ") {
            Some(other) => Ok(ActionReply::Duplicate(JobId::from_wire(other))),
            None => Ok(ActionReply::InState(state.parse()?)),
        },
    };
    words.iter().map(read).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    pub(crate) at_ms: u64,
    pub(crate) by: String,
    pub(crate) reason: String,
}

/// Pauses the task. Returns its pause if it was paused before.
pub(crate) async fn pause(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    by: &str,
    reason: &str,
) -> Result<Option<Paused>> {
    let mut reply = scripts::PAUSE.on(keys).arg(by).arg(reason).call(conn).await?;
    if reply.next::<String>()? == "paused" {
        return Ok(None);
    }
    let (Text(at), Text(by), Text(reason)) = (reply.next()?, reply.next()?, reply.next()?);
    Ok(Some(Paused { at_ms: stored_number(&at).unwrap_or(0), by, reason }))
}

/// Ends the pause. Returns how long it lasted; `None` if the task was not paused.
pub(crate) async fn resume(conn: &mut impl Connection, keys: &TaskKeys, by: &str) -> Result<Option<Duration>> {
    let mut reply = scripts::RESUME.on(keys).arg(by).call(conn).await?;
    if reply.next::<String>()? == "already" {
        return Ok(None);
    }
    Ok(Some(Duration::from_millis(reply.next()?)))
}

/// Removes every key of the task. If the task has jobs, removes nothing and returns how many.
pub(crate) async fn forget(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<u64>> {
    let mut reply = scripts::FORGET.on(keys).call(conn).await?;
    if reply.next::<String>()? == "forgotten" {
        return Ok(None);
    }
    Ok(Some(reply.next()?))
}
