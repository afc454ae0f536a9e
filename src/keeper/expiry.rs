//! Fails jobs that expired before a worker began them, even if no worker claims: the task is paused, or all slots are
//! taken.

use std::sync::Arc;

use super::HOUSEKEEPING;
use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::retention::{self, Trimmed};
use crate::error::Error;
use crate::limits::BATCH;

/// The most calls of one pass over a task. The rest waits for the next pass.
const CALLS: usize = 100;

/// Expires jobs every few seconds, until the keeper's runtime ends.
pub(super) async fn run(keeper: Arc<Keeper>) {
    loop {
        let own = &keeper;
        let pass = |watch: Arc<TaskMonitor>| async move {
            let (keeper, watch) = (own, &*watch);
            match run_once(keeper, watch).await {
                Ok(expired) => {
                    keeper.answered("expiry", watch.task.of());
                    let task = Arc::clone(&watch.task.name);
                    if expired > 0 {
                        keeper.log.line(move || tracing::debug!(%task, expired, "jobs expired"));
                    }
                    true
                }
                Err(e) => {
                    keeper.failed_at("expiry", watch.task.of(), &e);
                    !e.is_outage()
                }
            }
        };
        keeper.for_each_task(pass).await;
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Fails expired jobs of a task. Returns how many.
async fn run_once(keeper: &Keeper, watch: &TaskMonitor) -> Result<usize, Error> {
    let (task, worker, mut total) = (&watch.task, keeper.worker.id.as_str(), 0);
    for _ in 0..CALLS {
        let call = async |conn: &mut _| retention::expire(conn, &task.keys, worker, BATCH).await;
        match keeper.housekeeping_call(call).await? {
            Trimmed::Jobs { count, more } => {
                total += count;
                if !more {
                    break;
                }
            }
            Trimmed::Undeclared => {
                keeper.declare_again(watch).await?;
                break;
            }
        }
    }
    Ok(total)
}
