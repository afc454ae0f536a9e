//! `lua/retry.lua`: puts failed and cancelled jobs back into their lists.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::told::{Named, Told, told};
use crate::error::Error;

/// Puts failed and cancelled jobs back into their lists, at most `BATCH` of them.
pub(crate) async fn retry(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    by: &str,
) -> Result<Vec<Told>, Error> {
    let mut call = scripts::RETRY.on(keys);
    call.arg(by);
    for job in jobs {
        call.arg(job.id.as_str()).arg(&job.stamp);
    }
    told(&mut call.call(conn).await?, "retried")
}
