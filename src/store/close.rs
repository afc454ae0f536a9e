//! `lua/close.lua`: ends the calls of a worker that has stopped.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::settle::LINES;
use crate::error::Error;
use crate::limits::BATCH;

/// Ends the lines of calls of a worker that has stopped.
pub(crate) async fn close(conn: &mut impl Connection, keys: &TaskKeys, worker: &str) -> Result<(), Error> {
    close_all(conn, keys, std::slice::from_ref(&worker)).await
}

/// The same for workers that are dead. There may be very many, where a process dies at each start.
pub(crate) async fn close_all(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    workers: &[impl AsRef<str>],
) -> Result<(), Error> {
    for some in workers.chunks(BATCH) {
        let mut call = scripts::CLOSE.on(keys);
        for worker in some {
            for line in LINES {
                call.arg(format!("{}{line}", worker.as_ref()));
            }
        }
        call.call(conn).await?;
    }
    Ok(())
}
