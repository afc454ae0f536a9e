//! `lua/look.lua`: what is wrong with jobs.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// The faults of each job, words with spaces between. Of each it is told how many entries the lists have, which were read from
/// `began_ms` on.
pub(crate) async fn look(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    began_ms: u64,
    jobs: &[(String, u32)],
) -> Result<Vec<String>, Error> {
    let mut call = scripts::LOOK.on(keys);
    call.arg(began_ms);
    for (id, listed) in jobs {
        call.arg(id).arg(listed);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    reply.rest()
}
