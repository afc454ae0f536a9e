//! `lua/counts.lua`: counts the jobs of a task.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// The jobs of a task, counted in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedJobs {
    /// How many wait, are delayed, claimed, running, finalizing, completed, failed and cancelled.
    pub(crate) jobs: [u64; 8],
    pub(crate) is_paused: bool,
}

/// Counts the jobs of a task.
pub(crate) async fn counts(conn: &mut impl Connection, keys: &TaskKeys) -> Result<CountedJobs, Error> {
    let mut reply = scripts::COUNTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    let mut jobs = [0; 8];
    for count in &mut jobs {
        *count = reply.next()?;
    }
    Ok(CountedJobs { jobs, is_paused: reply.next::<u8>()? == 1 })
}
