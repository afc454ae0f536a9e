//! `lua/flow_stage.lua`: writes a part of an instance that is too large for one call. `lua/flow_unstage.lua`: removes what was written of one that was given up.

use std::time::Duration;

use super::connection::Connection;
use super::flow_start::NewInstance;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;
use crate::times::to_ms;

/// What somebody else is starting, and has written no part of for so long, is given up by them.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was written of an instance is kept for so long.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// A part of an instance: numbers of nodes and their states, numbers of records, numbers of inputs.
#[derive(Debug, Default)]
pub(crate) struct StagedPart {
    pub(crate) states: Vec<u32>,
    pub(crate) records: Vec<usize>,
    pub(crate) inputs: Vec<usize>,
}

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    /// It is written; the shape is known already or not.
    Written { shape_is_known: bool },
    /// There is an instance of this id.
    Existed,
    /// Somebody else is starting one of this id.
    Other,
    /// Somebody else has given one up, and what is written of that is to be removed.
    Left,
    /// Some of the parts before it are not there.
    PartsUnknown,
}

/// Writes a part. It is safe to repeat.
pub(crate) async fn stage(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &NewInstance<'_>,
    (nonce, number): (&str, u32),
    part: &StagedPart,
) -> Result<Staged, Error> {
    let NewInstance { id, shape, inputs, .. } = instance;
    let mut call = scripts::FLOW_STAGE.on(keys);
    call.arg(*id).arg(nonce).arg(number).arg(&shape.digest).arg(shape.states.len());
    call.arg(part.states.len()).arg(part.records.len()).arg(to_ms(PATIENCE));
    for index in &part.states {
        let state = &*shape.states[*index as usize];
        // Opened once all of it is there.
        call.arg(index).arg(if matches!(state, "o" | "g") { "p 0 0" } else { state });
    }
    for (field, record) in part.records.iter().map(|index| &shape.records[*index]) {
        call.arg(field).arg(record.as_slice());
    }
    for (node, payload) in part.inputs.iter().map(|index| &inputs[*index]) {
        call.arg(node).arg(payload.as_slice());
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "staged" => Ok(Staged::Written { shape_is_known: reply.next::<u8>()? > 0 }),
        "existed" => Ok(Staged::Existed),
        "other" => Ok(Staged::Other),
        "left" => Ok(Staged::Left),
        "parts" => Ok(Staged::PartsUnknown),
        other => Err(reply.unexpected(other)),
    }
}

/// Removes some of what was given up an hour ago; or of one instance, of which no part came for some seconds. Returns whether others, or more of it, may follow at once.
pub(crate) async fn unstage(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: Option<&str>,
) -> Result<bool, Error> {
    let mut call = scripts::FLOW_UNSTAGE.on(keys);
    call.arg(to_ms(if instance.is_some() { PATIENCE } else { GIVEN_UP })).arg(instance.unwrap_or_default());
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let (_, more): (u64, u8) = (reply.next()?, reply.next()?);
    Ok(more > 0)
}
