//! `lua/shrink.lua`: makes the table of the candidates small.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Moves the server on in shrinking the table of the candidates, so that a sweep that looks for a few of once very many
/// takes no milliseconds. Of use when less than a thousandth of the running jobs is left, once for each `SHRINK_STEP`.
pub(crate) async fn shrink(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    scripts::SHRINK.on(keys).call(conn).await.map(drop)
}
