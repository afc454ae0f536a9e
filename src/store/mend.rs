//! `lua/mend.lua`: mends what is wrong with jobs.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Mends those of the faults that are still there: of each job its id, how many entries the lists have, and the faults. Returns
/// those that were mended.
pub(crate) async fn mend(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    by: &str,
    began_ms: u64,
    jobs: &[(String, u32, String)],
) -> Result<Vec<String>, Error> {
    let mut call = scripts::MEND.on(keys);
    call.arg(by).arg(began_ms);
    for (id, listed, faults) in jobs {
        call.arg(id).arg(listed).arg(faults);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    reply.rest()
}
