//! What people do to an instance of a workflow: cancel it (`lua/flow_control.lua`), pause and resume it
//! (`lua/flow_pause.lua`), retry it (`lua/flow_retry.lua`).

use super::advance::{Advanced, news};
use super::instances::place_of;
use crate::backend::connection::Connection;
use crate::backend::keys::TaskKeys;
use crate::backend::scripts;
use crate::error::Result;
use crate::job::instance::WorkflowState;

/// The answer to a cancel.
#[derive(Debug)]
pub(crate) enum Controlled {
    /// The open nodes of this run must be cancelled.
    Stopping(u64),
    /// It has ended, before or by this call, in this place. If it is a child: what follows for its parent.
    Ended(WorkflowState, Advanced),
    Unknown,
}

/// Cancels the instance. Safe to repeat.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    reason: &str,
) -> Result<Controlled> {
    let mut reply = scripts::FLOW_CONTROL.on(keys).arg(instance).arg(reason).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "stopping" => Ok(Controlled::Stopping(reply.next()?)),
        "ended" => {
            let place = place_of(&reply.next::<String>()?);
            Ok(Controlled::Ended(place, news(&mut reply, keys)?))
        }
        _ => Ok(Controlled::Unknown),
    }
}

/// The request, and who made it, if known.
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

/// The answer to a pause or a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    Paused,
    /// The ready nodes of this run must be opened.
    Resumed(u64),
    /// It had no nodes left to run, and ended.
    Ended,
    /// It has changed its place since, or is stopping.
    Changed,
    Unknown,
}

/// Pauses or resumes the instance, if it is still in the turn that the caller saw. Safe to repeat.
pub(crate) async fn turn(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    seen: u64,
    asked: &TurnAsked<'_>,
) -> Result<Turned> {
    let asked = match asked {
        TurnAsked::Pause { by, why } => &["pause", by, why][..],
        TurnAsked::Resume { by } => &["resume", by],
    };
    let mut reply = scripts::FLOW_PAUSE.on(keys).arg(instance).arg(seen).arg(asked).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "paused" => Ok(Turned::Paused),
        "resumed" => Ok(Turned::Resumed(reply.next()?)),
        "ended" => Ok(Turned::Ended),
        "changed" => Ok(Turned::Changed),
        _ => Ok(Turned::Unknown),
    }
}

/// The answer to a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The ready nodes of this run must be opened.
    Run(u64),
    /// The caller must send the next part.
    Part,
    /// This many nodes are open, so their handlers may be running.
    Busy(u64),
    /// A node has completed since the caller read the states. The caller must read them again.
    Moved,
    /// It has changed its place since.
    Changed,
    Unknown,
}

/// Writes these states, at most 500, if the instance is in the turn that the caller saw. The last part contains the
/// total number of live nodes, and begins a new run.
pub(crate) async fn retry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    seen: u64,
    nodes: &[(u32, String)],
    last: Option<usize>,
) -> Result<Again> {
    let mut call = scripts::FLOW_RETRY.on(keys);
    let live = last.map_or_else(|| "-".to_owned(), |live| live.to_string());
    let mut reply = call.arg(instance).arg(seen).arg(live).args(nodes).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "again" => Ok(Again::Run(reply.next()?)),
        "part" => Ok(Again::Part),
        "busy" => Ok(Again::Busy(reply.next()?)),
        "moved" => Ok(Again::Moved),
        "changed" => Ok(Again::Changed),
        _ => Ok(Again::Unknown),
    }
}
