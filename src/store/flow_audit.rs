//! `lua/flow_audit.lua`: instances of a workflow that were not moved for long.

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::limits::BATCH;
use crate::times::to_ms;

/// Takes those that were not moved for so long, and have open nodes; and whether there may be more.
pub(crate) async fn audit(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    age: Duration,
) -> Result<(Vec<String>, bool), Error> {
    let mut call = scripts::FLOW_AUDIT.on(keys);
    call.arg(to_ms(age)).arg(BATCH);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let more: u8 = reply.next()?;
    Ok((reply.rest::<Text>()?.into_iter().map(|Text(instance)| instance).collect(), more > 0))
}
