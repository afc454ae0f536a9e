//! `lua/flow_open.lua`: opens nodes of an instance that are ready.

use super::connection::Connection;
use super::flow_advance::{Advanced, news};
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Opens those of the next page. Returns what follows, and whether there are more nodes to look at. It is safe to repeat.
pub(crate) async fn open(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    instance: &str,
    run: u64,
) -> Result<(Advanced, bool), Error> {
    let mut call = scripts::FLOW_OPEN.on(keys);
    call.arg(instance).arg(run);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let more: u8 = reply.next()?;
    Ok((news(&mut reply, keys)?, more > 0))
}
