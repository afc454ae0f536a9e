//! `lua/expire.lua`: lets jobs fail that nobody began in time.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::trim::Trimmed;
use crate::error::Error;

/// Lets jobs fail whose time to begin is over, at most `limit` of them.
pub(crate) async fn expire(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    limit: usize,
) -> Result<Trimmed, Error> {
    let mut reply = scripts::EXPIRE.on(keys).arg(worker).arg(limit).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "expired" => Ok(Trimmed::Jobs { count: reply.next()?, more: reply.next::<u8>()? == 1 }),
        "undeclared" => Ok(Trimmed::Undeclared),
        other => Err(reply.unexpected(other)),
    }
}
