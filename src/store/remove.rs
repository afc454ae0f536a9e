//! `lua/remove.lua`: removes jobs that nobody holds.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::told::{Named, Told, told};
use crate::error::Error;

/// Removes jobs that nobody holds, at most `BATCH` of them.
pub(crate) async fn remove(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    by: &str,
) -> Result<Vec<Told>, Error> {
    let mut call = scripts::REMOVE.on(keys);
    call.arg(by);
    for job in jobs {
        call.arg(job.id.as_str()).arg(&job.stamp);
    }
    told(&mut call.call(conn).await?, "removed")
}
