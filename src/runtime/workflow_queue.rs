//! The queue from drivers and runs to the workflow runner of their worker.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::backend::keys::TaskKeys;
use crate::backend::workflow::advance::{EndedNode, Entered};
use crate::job::node_id::NodeId;
use crate::mutex::Mutex;

/// How many notices may wait. The workflow runner finds more by reading outboxes.
const WAITING: usize = 10_000;

/// A notice for the workflow runner.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A node ended; its task has it in the outbox.
    Ended(EndedNode, Arc<TaskKeys>),
    /// Jobs of workflows ended, and this process has no details about them.
    LookAt(Arc<TaskKeys>),
}

/// A run of a node asks whether it may begin.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) node: NodeId,
    pub(crate) answer: oneshot::Sender<Entered>,
    /// How often this was asked without an answer.
    pub(crate) tries: u32,
}

/// The receiving end of the workflow runner.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) asks: mpsc::UnboundedReceiver<Ask>,
}

/// The sending end for notices and questions.
#[derive(Debug)]
pub(crate) struct WorkflowQueue {
    notices: mpsc::Sender<Notice>,
    asks: mpsc::UnboundedSender<Ask>,
    inbox: Mutex<Option<Inbox>>,
}

impl Default for WorkflowQueue {
    fn default() -> WorkflowQueue {
        let ((notices, notices_in), (asks, asks_in)) = (mpsc::channel(WAITING), mpsc::unbounded_channel());
        WorkflowQueue { notices, asks, inbox: Mutex::new(Some(Inbox { notices: notices_in, asks: asks_in })) }
    }
}

impl WorkflowQueue {
    /// The receiving end. `None` after the first call.
    pub(crate) fn inbox(&self) -> Option<Inbox> {
        self.inbox.lock().take()
    }

    /// Sends a notice. It is dropped if too many wait: the outbox still has it.
    pub(crate) fn leave(&self, notice: Notice) {
        let _ = self.notices.try_send(notice);
    }

    /// Asks whether the node may begin. There is no answer if the workflow runner is gone.
    pub(crate) fn ask(&self, node: NodeId) -> oneshot::Receiver<Entered> {
        let (answer, answered) = oneshot::channel();
        // One run per slot asks at a time, so their number is bounded.
        let _ = self.asks.send(Ask { node, answer, tries: 0 });
        answered
    }
}
