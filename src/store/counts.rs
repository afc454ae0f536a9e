//! `lua/counts.lua`: counts the jobs of a task.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::connection::Connection;
use super::engine::Store;
use super::keys::TaskKeys;
use super::patience::RESPONSE_TIMEOUT;
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

/// The jobs of all tables of a task, each counted in one step.
pub(crate) async fn of_all(store: &Store, tables: &[Arc<TaskKeys>]) -> Result<[u64; 8], Error> {
    let looks = tables.iter().map(|keys| {
        store
            .ask(RESPONSE_TIMEOUT, move |mut conn| async move { counts(&mut conn, keys).await.map(|found| found.jobs) })
    });
    let add = |sum: [u64; 8], jobs: [u64; 8]| std::array::from_fn(|at| sum[at] + jobs[at]);
    Ok(try_join_all(looks).await?.into_iter().fold([0; 8], add))
}
