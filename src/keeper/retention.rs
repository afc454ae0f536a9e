//! Trims the terminal sets by the age and the count that are declared, in bounded calls.

use std::sync::Arc;

use super::HOUSEKEEPING;
use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::keys::Key;
use crate::backend::retention::{self, Trimmed};
use crate::error::Error;

/// The most jobs that one call removes: with long ids, 500 blocked the server for some milliseconds.
const TRIM_BATCH: usize = 200;

/// The most jobs that one pass removes from a set. The rest waits for the next pass, to leave the server time for other
/// work.
const PASS: usize = 50 * TRIM_BATCH;

/// The most calls of one pass over a set. A call removes few large jobs.
const CALLS: usize = 400;

/// Removes terminal jobs beyond the retention of their tasks.
pub(super) async fn run(keeper: Arc<Keeper>) {
    loop {
        let own = &keeper;
        let pass = |watch: Arc<TaskMonitor>| async move {
            let (keeper, watch) = (own, &*watch);
            match run_once(keeper, watch).await {
                Ok(removed) => {
                    keeper.answered("retention", watch.task.of());
                    let task = Arc::clone(&watch.task.name);
                    keeper.log.line(move || tracing::trace!(%task, removed, "terminal jobs trimmed"));
                    true
                }
                Err(e) => {
                    keeper.failed_at("retention", watch.task.of(), &e);
                    !e.is_outage()
                }
            }
        };
        keeper.for_each_task(pass).await;
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Removes jobs beyond their age or count. Returns how many.
async fn run_once(keeper: &Keeper, watch: &TaskMonitor) -> Result<usize, Error> {
    let (task, worker, mut total) = (&watch.task, keeper.worker.id.as_str(), 0);
    for place in [Key::Completed, Key::Failed, Key::Cancelled] {
        let mut removed = 0;
        for _ in 0..CALLS {
            let limit = TRIM_BATCH.min(PASS - removed);
            let call = async |conn: &mut _| retention::trim(conn, &task.keys, place, worker, limit).await;
            match keeper.housekeeping_call(call).await? {
                Trimmed::Jobs { count, more } => {
                    removed += count;
                    if !more || removed >= PASS {
                        break;
                    }
                }
                Trimmed::Undeclared => {
                    keeper.declare_again(watch).await?;
                    break;
                }
            }
        }
        total += removed;
    }
    Ok(total)
}
