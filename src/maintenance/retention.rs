//! Trims the terminal sets by age and count, in bounded calls.

use crate::error::Error;
use crate::store::{Key, jobs};
use crate::worker::keeper::{Keeper, TaskWatch};

/// The most jobs that one call removes.
const BATCH: usize = 500;

/// The most calls in one pass over a set, so that a large backlog does not keep the other sets waiting.
const CALLS: usize = 100;

/// Removes what is past its age or count. Returns how many jobs, and whether a set was left with more.
pub(crate) async fn run_once(keeper: &Keeper, watch: &TaskWatch) -> Result<(usize, bool), Error> {
    let (task, mut total, mut more) = (&watch.task, 0, false);
    let keep = &task.options.retention;
    for (place, limit) in
        [(Key::Completed, keep.completed), (Key::Failed, keep.failed), (Key::Cancelled, keep.cancelled)]
    {
        if limit.max_age_ms.is_none() && limit.max_count.is_none() && !limit.remove_at_once {
            continue;
        }
        for call in 1..=CALLS {
            let worker = keeper.worker.id.as_str();
            let trimmed = keeper
                .call(watch, async |conn| jobs::trim(conn, &task.keys, place, worker, limit, BATCH).await)
                .await?;
            total += trimmed;
            if trimmed < BATCH {
                break;
            }
            more |= call == CALLS;
        }
    }
    Ok((total, more))
}
