//! `lua/cancel.lua`: cancels jobs.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::told::{Named, Told, told};
use crate::error::Error;

/// Cancels the jobs that wait, and asks the workers that hold the others; at most `BATCH` of them.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[Named],
    reason: &str,
    by: &str,
) -> Result<Vec<Told>, Error> {
    // A request without a reason is to be seen, too.
    let reason = if reason.trim().is_empty() { "no reason was given" } else { reason };
    let mut call = scripts::CANCEL.on(keys);
    call.arg(reason).arg(keys.cancel_channel()).arg(by);
    for job in jobs {
        call.arg(job.id.as_str()).arg(&job.stamp);
    }
    // A cancelled job that asks to be cancelled is told so by its state, too.
    told(&mut call.call(conn).await?, "ended")
}
