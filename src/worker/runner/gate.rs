//! Whether the handler of a node of a workflow may begin.

use crate::backend::report::Disposition;
use crate::job::node_id::NodeId;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::shared::WorkerShared;

/// Asks the workflow of a node whether its run may begin, however long that takes; the job stays held meanwhile.
/// Returns what to report if it may not. `None` if it may, or if the job belongs to no workflow.
pub(super) async fn closed(worker: &WorkerShared, held: &HeldJob) -> Option<Disposition> {
    let node = NodeId::of(&held.id)?;
    tokio::select! {
        // If the worker's workflow runner is gone, no answer comes.
        answer = worker.workflow_queue.ask(node) => match answer {
            Ok(true) => None,
            Ok(false) => Some(Disposition::Drop),
            Err(_) => Some(Disposition::Requeue),
        },
        () = held.wait_for(Flags::NOT_TO_BEGIN) => Some(Disposition::Requeue),
    }
}
