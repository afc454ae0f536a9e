//! `lua/flow_control.lua`: has an instance of a workflow cancelled.

use super::connection::Connection;
use super::flow_advance::{Advanced, news};
use super::flow_state::FlowPlace;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// What became of a cancel.
#[derive(Debug)]
pub(crate) enum Controlled {
    /// What is open in this run is to be cancelled.
    Stopping(u64),
    /// It stands here, already or now; and, of a child, what follows from that.
    Ended(FlowPlace, Advanced),
    Unknown,
}

/// Asks for the cancel. It is safe to repeat.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    reason: &str,
) -> Result<Controlled, Error> {
    let mut call = scripts::FLOW_CONTROL.on(keys);
    call.arg(instance).arg(reason);
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "stopping" => Ok(Controlled::Stopping(reply.next()?)),
        "ended" => {
            let place = FlowPlace::from_wire(&reply.next::<String>()?);
            Ok(Controlled::Ended(place, news(&mut reply, keys)?))
        }
        _ => Ok(Controlled::Unknown),
    }
}
