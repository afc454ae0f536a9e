//! `lua/flow_visit.lua`: goes on from an ended node to more of its dependents.

use super::connection::Connection;
use super::flow_advance::{Advanced, news};
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Goes on from a node, named as `<instance>/<node>/<run>`. It is safe to repeat.
pub(crate) async fn visit(conn: &mut impl Connection, keys: &TaskKeys, mark: &str) -> Result<Advanced, Error> {
    let mut words = mark.rsplitn(3, '/');
    let (run, node, instance) = (words.next(), words.next(), words.next());
    let mut call = scripts::FLOW_VISIT.on(keys);
    call.arg(instance.unwrap_or_default()).arg(node.unwrap_or_default()).arg(run.unwrap_or_default());
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    news(&mut reply, keys)
}
