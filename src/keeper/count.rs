//! Counts waiting jobs, for the health of the worker: a claim loop that does nothing while jobs wait is a fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::HOUSEKEEPING;
use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::overview;
use crate::error::Error;

/// Counts every few seconds, until the keeper's runtime ends.
pub(super) async fn run(keeper: Arc<Keeper>) {
    loop {
        let own = &keeper;
        let pass = |watch: Arc<TaskMonitor>| async move {
            let (keeper, watch) = (own, &*watch);
            match run_once(keeper, watch).await {
                Ok(_) => {
                    keeper.answered("counts", watch.task.of());
                    true
                }
                Err(e) => {
                    keeper.failed_at("counts", watch.task.of(), &e);
                    !e.is_outage()
                }
            }
        };
        keeper.for_each_task(pass).await;
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Counts the waiting jobs of a task. Returns how many.
async fn run_once(keeper: &Keeper, watch: &TaskMonitor) -> Result<u64, Error> {
    let (task, counted) = (&watch.task, &watch.task.counted);
    let found = keeper.housekeeping_call(async |conn| overview::counts(conn, &task.keys).await).await?;
    let [waiting, ..] = found.jobs;
    counted.waiting.store(waiting, Ordering::Relaxed);
    counted.is_paused.store(found.is_paused, Ordering::Relaxed);
    Ok(waiting)
}
