//! `lua/counts.lua`: counts the jobs of a task.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// How many jobs of a task wait, are delayed, running, completed, failed and cancelled, counted in one step.
pub(crate) async fn counts(conn: &mut impl Connection, keys: &TaskKeys) -> Result<[u64; 6], Error> {
    let mut reply = scripts::COUNTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    reply.rest()?.try_into().map_err(|counts| reply.unexpected(&format!("{counts:?}")))
}
