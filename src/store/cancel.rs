//! `lua/cancel.lua`: cancels a job.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;
use crate::job::state::JobState;

/// The answer to a cancel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CancelReply {
    Cancelled,
    Requested,
    Terminal(JobState),
    Unknown,
}

/// Cancels a job that waits, or asks the worker that holds it.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    id: &str,
    reason: &str,
) -> Result<CancelReply, Error> {
    let mut call = scripts::CANCEL.on(keys);
    let mut reply = call.arg(id).arg(reason).arg(keys.cancel_channel()).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "cancelled" => Ok(CancelReply::Cancelled),
        "requested" => Ok(CancelReply::Requested),
        "terminal" => Ok(CancelReply::Terminal(reply.next::<String>()?.parse()?)),
        "unknown" => Ok(CancelReply::Unknown),
        other => Err(reply.unexpected(other)),
    }
}
