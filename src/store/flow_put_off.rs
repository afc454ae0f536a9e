//! `lua/flow_put_off.lua`: what could not be done for a workflow is tried again later.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Puts entries of its outbox off that could not be carried out, at most 200, so that they hold up no others; none where it could not be
/// told of jobs that ended, which stand in outboxes of their tasks.
pub(crate) async fn put_off(conn: &mut impl Connection, keys: &TaskKeys, entries: &[String]) -> Result<(), Error> {
    let mut call = scripts::FLOW_PUT_OFF.on(keys);
    for entry in entries {
        call.arg(entry);
    }
    call.call(conn).await.map(drop)
}
