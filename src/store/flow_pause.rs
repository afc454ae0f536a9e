//! `lua/flow_pause.lua`: pauses an instance of a workflow, or lets it go on.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// What is asked for, and by whom, as far as that is known.
#[derive(Debug)]
pub(crate) enum TurnAsked<'a> {
    /// `why` is JSON.
    Pause {
        by: &'a str,
        why: &'a str,
    },
    Resume {
        by: &'a str,
    },
}

/// What became of a pause, or a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    Paused,
    /// What is ready in this run is to be opened.
    Resumed(u64),
    /// Nothing of it was left.
    Ended,
    /// It stands elsewhere by now, or stops.
    Changed,
    Unknown,
}

/// Pauses the instance, or resumes it, where it still is in the turn that the caller saw. It is safe to repeat.
pub(crate) async fn turn(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    seen: u64,
    asked: &TurnAsked<'_>,
) -> Result<Turned, Error> {
    let mut call = scripts::FLOW_PAUSE.on(keys);
    call.arg(instance).arg(seen);
    match asked {
        TurnAsked::Pause { by, why } => call.arg("pause").arg(by).arg(why),
        TurnAsked::Resume { by } => call.arg("resume").arg(by),
    };
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "paused" => Ok(Turned::Paused),
        "resumed" => Ok(Turned::Resumed(reply.next()?)),
        "ended" => Ok(Turned::Ended),
        "changed" => Ok(Turned::Changed),
        _ => Ok(Turned::Unknown),
    }
}
