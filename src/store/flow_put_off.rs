//! `lua/flow_put_off.lua`: what could not be done for a workflow is tried again later.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Puts entries of its outbox off that could not be carried out, at most 200, so that they hold up no others.
pub(crate) async fn put_off(conn: &mut impl Connection, keys: &TaskKeys, entries: &[String]) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    written(conn, keys, entries).await
}

/// Notes that it could not be told of jobs that ended: these stand in outboxes of their tasks.
pub(crate) async fn untold(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    written(conn, keys, &[]).await
}

async fn written(conn: &mut impl Connection, keys: &TaskKeys, entries: &[String]) -> Result<(), Error> {
    let mut call = scripts::FLOW_PUT_OFF.on(keys);
    for entry in entries {
        call.arg(entry);
    }
    call.call(conn).await.map(drop)
}
