//! `lua/close.lua`: ends the calls of a worker that has stopped.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::settle::LINES;
use crate::error::Error;

/// Ends the lines of calls of a worker that has stopped.
pub(crate) async fn close(conn: &mut impl Connection, keys: &TaskKeys, worker: &str) -> Result<(), Error> {
    let mut call = scripts::CLOSE.on(keys);
    for line in LINES {
        call.arg(format!("{worker}{line}"));
    }
    call.call(conn).await.map(drop)
}
