//! Whether the handler of a node of a workflow may begin.

use crate::job::node_id::NodeId;
use crate::process::held::{Flags, Held};
use crate::process::shared::WorkerShared;
use crate::store::report::Disposition;

/// Asks the workflow of a node, however long that takes, while the job is held and beaten for. What is to be reported of a run that is
/// not to begin; `None` when it begins. Other jobs are not asked about.
pub(super) async fn closed(worker: &WorkerShared, held: &Held) -> Option<Disposition> {
    let node = NodeId::of(&held.id)?;
    tokio::select! {
        // Nobody answers any more where the worker's courier has gone.
        answer = worker.desk.ask(node) => match answer {
            Ok(true) => None,
            Ok(false) => Some(Disposition::Drop),
            Err(_) => Some(Disposition::Requeue),
        },
        () = held.wait_for(Flags::NOT_TO_BEGIN) => Some(Disposition::Requeue),
    }
}
