//! `lua/flow_state.lua`: tells where an instance of a workflow stands.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Error;

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowPlace {
    Running,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

impl FlowPlace {
    /// One that there is not is a failure: somebody has written it by hand.
    pub(super) fn from_wire(word: &str) -> FlowPlace {
        match word {
            "running" => FlowPlace::Running,
            "paused" => FlowPlace::Paused,
            "completed" => FlowPlace::Completed,
            "cancelled" => FlowPlace::Cancelled,
            _ => FlowPlace::Failed,
        }
    }
}

/// An instance as it is.
#[derive(Debug)]
pub(crate) struct FlowState {
    pub(crate) place: FlowPlace,
    /// It stands in no place, not even that of failed ones.
    pub(crate) is_nowhere: bool,
    pub(crate) run: u64,
    /// Nodes that have not ended.
    pub(crate) live: u64,
    /// Nodes that are open.
    pub(crate) open: u64,
    pub(crate) digest: String,
    /// The first node that broke it, and its failure as JSON.
    pub(crate) broken_by: Option<(u32, String)>,
    /// What it answers as JSON, or why it did not complete, or who paused it; empty for nothing.
    pub(crate) answer: Vec<u8>,
    /// How often it changed its place.
    pub(crate) turn: u64,
    /// Nothing of it opens any more.
    pub(crate) is_stopping: bool,
}

/// Where the instance stands; `None` when there is none.
pub(crate) async fn state(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
) -> Result<Option<FlowState>, Error> {
    let mut call = scripts::FLOW_STATE.on(keys);
    call.arg(instance);
    let mut reply = call.call(conn).await?;
    if reply.next::<String>()? != "state" {
        return Ok(None);
    }
    let place: String = reply.next()?;
    let (is_nowhere, place) = (place == "unknown", FlowPlace::from_wire(&place));
    let (run, live, open) = (reply.next()?, reply.next()?, reply.next()?);
    let (Text(digest), Text(bad), Text(said)) = (reply.next()?, reply.next()?, reply.next()?);
    let broken_by = bad.parse().ok().map(|node| (node, said));
    let (answer, turn, is_stopping) = (reply.next()?, reply.next()?, reply.next::<u8>()? > 0);
    Ok(Some(FlowState { place, is_nowhere, run, live, open, digest, broken_by, answer, turn, is_stopping }))
}
