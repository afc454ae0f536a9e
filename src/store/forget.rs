//! `lua/forget.lua`: removes what is left of a task without jobs.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Removes every key of the task. Returns how many jobs are in the way, when some are: nothing is removed then.
pub(crate) async fn forget(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<u64>, Error> {
    let mut reply = scripts::FORGET.on(keys).call(conn).await?;
    if reply.next::<String>()? == "forgotten" {
        return Ok(None);
    }
    Ok(Some(reply.next()?))
}
