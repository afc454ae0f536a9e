//! Writes the notes of handlers before their outcomes.

use std::time::Duration;

use crate::backend::note::{self, RunNote};
use crate::backend::report::{Disposition, Report};
use crate::backend::timeouts::response_time;
use crate::error::Error;
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// Writes the notes of these jobs that Redis does not have yet: the next run continues from them. Skips completed jobs, which
/// have no next run. Each call waits for its answer for `timeout`, or longer if its bytes take longer.
pub(super) async fn write_notes(
    task: &TaskRuntime,
    worker: &WorkerShared,
    reports: &[Report],
    timeout: Duration,
) -> Result<(), Error> {
    let goes_on = |outcome: &Disposition| outcome.ends_the_hold() && !matches!(outcome, Disposition::Completed(_));
    let ended = reports.iter().filter(|report| goes_on(&report.outcome));
    let notes = ended.filter_map(|report| task.held.get(report.fence)?.pending_note(true)).collect();
    for notes in note::in_calls(notes) {
        let time = timeout.max(response_time(notes.iter().map(RunNote::bytes).sum()));
        let call = async |conn: &mut _| note::note(conn, &task.keys, worker.id.as_str(), &notes).await;
        worker.store.shared(time, call).await?;
        for written in &notes {
            if let Some(held) = task.held.get(written.fence) {
                held.notes.written(written);
            }
        }
    }
    Ok(())
}
