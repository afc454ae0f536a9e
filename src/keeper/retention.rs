//! Trims the terminal sets by the age and the count that are declared, in bounded calls.

use std::sync::Arc;

use super::HOUSEKEEPING;
use super::Keeper;
use super::watch::TaskWatch;
use crate::error::Error;
use crate::store::keys::Key;
use crate::store::trim::{self, Trimmed};

/// The most jobs that one call removes: of jobs with long ids, 500 kept the server busy for some milliseconds.
const TRIM_BATCH: usize = 200;

/// The most jobs that one pass removes from a set: what is behind that waits for the next pass, since the server has other
/// things to do.
const PASS: usize = 50 * TRIM_BATCH;

/// The most calls of one pass over a set. Of large jobs a call removes few.
const CALLS: usize = 400;

/// Removes terminal jobs that are past what the tasks keep.
pub(super) async fn run(keeper: Arc<Keeper>) {
    loop {
        let own = &keeper;
        let pass = |watch: Arc<TaskWatch>| async move {
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

/// Removes what is past its age or count. Returns how many jobs.
async fn run_once(keeper: &Keeper, watch: &TaskWatch) -> Result<usize, Error> {
    let (task, worker, mut total) = (&watch.task, keeper.worker.id.as_str(), 0);
    for place in [Key::Completed, Key::Failed, Key::Cancelled] {
        let mut removed = 0;
        for _ in 0..CALLS {
            let limit = TRIM_BATCH.min(PASS - removed);
            let call = async |conn: &mut _| trim::trim(conn, &task.keys, place, worker, limit).await;
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
