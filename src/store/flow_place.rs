//! `lua/flow_place.lua`: instances that stand in no place are paused, or go on to stop.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Puts those of the instances, at most 200, into a place that stand in none. Returns how many these were. It is safe to repeat.
pub(crate) async fn place(conn: &mut impl Connection, keys: &TaskKeys, instances: &[String]) -> Result<u64, Error> {
    let mut call = scripts::FLOW_PLACE.on(keys);
    for instance in instances {
        call.arg(instance);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    reply.next()
}
