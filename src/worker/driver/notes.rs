//! What handlers noted that a shutdown has dropped.

use std::sync::Arc;

use crate::process::shared::WorkerShared;
use crate::process::task::TaskRuntime;
use crate::store::note;
use crate::store::patience::RESPONSE_TIMEOUT;

/// Writes what the handlers of the task noted that were dropped: whoever runs their jobs next goes on from it.
pub(super) async fn write_notes(task: Arc<TaskRuntime>, worker: Arc<WorkerShared>) {
    let held = task.held.all();
    for notes in note::in_calls(held.iter().filter_map(|held| held.pending_note(true)).collect()) {
        let call = async |conn: &mut _| note::note(conn, &task.keys, worker.id.as_str(), &notes).await;
        if let Err(e) = worker.store.shared(RESPONSE_TIMEOUT, call).await {
            tracing::warn!(task = %task.name, error = %e.chain(), "what handlers noted cannot be written");
            return;
        }
    }
}
