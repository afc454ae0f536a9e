//! Trims the terminal sets by age and count, in bounded calls.

use crate::error::Error;
use crate::store::{Key, jobs};
use crate::worker::keeper::{Keeper, TaskWatch};

/// The most jobs that one call removes.
const BATCH: usize = 200;

/// The most calls in one pass over a set: a large backlog is trimmed over several passes.
const CALLS: usize = 50;

/// Removes what is past its age or count. Returns how many jobs.
pub(crate) async fn run_once(keeper: &Keeper, watch: &TaskWatch) -> Result<usize, Error> {
    let (task, mut total) = (&watch.task, 0);
    let keep = &task.options.retention;
    for (place, limit) in
        [(Key::Completed, keep.completed), (Key::Failed, keep.failed), (Key::Cancelled, keep.cancelled)]
    {
        if limit.max_age_ms.is_none() && limit.max_count.is_none() {
            continue;
        }
        for _ in 0..CALLS {
            let worker = keeper.worker.id.as_str();
            let trimmed = keeper
                .call(watch, async |conn| jobs::trim(conn, &task.keys, place, worker, limit, BATCH).await)
                .await?;
            total += trimmed;
            if trimmed < BATCH {
                break;
            }
        }
    }
    Ok(total)
}
