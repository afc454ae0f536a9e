//! `lua/rights.lua`: finds out what our user of the server may not do.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Makes sure that our user of the server may run every command that writes, as far as the server can tell.
///
/// # Errors
/// `Unsupported` with what is missing.
pub(crate) async fn check_rights(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    let mut reply = scripts::RIGHTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    let missing: Vec<String> = reply.rest()?;
    if missing.is_empty() {
        return Ok(());
    }
    let rights: Vec<String> = missing.chunks(2).map(|right| right.join(" on ")).collect();
    let what = format!("the user of the server may not run {}; grant it, or jobs would be lost", rights.join(", "));
    Err(Error::Unsupported { what })
}
