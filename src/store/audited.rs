//! `lua/audited.lua`: notes what an audit found.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Notes what an audit found. Returns whether anything is kept of the task.
pub(crate) async fn audited(conn: &mut impl Connection, keys: &TaskKeys, found: &str) -> Result<bool, Error> {
    let mut reply = scripts::AUDITED.on(keys).arg(found).call(conn).await?;
    Ok(reply.next::<String>()? == "noted")
}
