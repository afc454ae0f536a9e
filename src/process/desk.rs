//! Where drivers and runs leave what the courier of their worker is to do.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::job::node_id::NodeId;
use crate::store::keys::TaskKeys;
use crate::store::workflow::advance::EndedNode;

/// How much may wait: more is found by a look.
const WAITING: usize = 10_000;

/// What the courier is to know.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A node ended; the table has it in its outbox.
    Ended(EndedNode, Arc<TaskKeys>),
    /// Jobs of workflows ended of which no more is known here.
    LookAt(Arc<TaskKeys>),
}

/// A run of a node that asks whether it may begin.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) node: NodeId,
    pub(crate) answer: oneshot::Sender<bool>,
    /// How often it was asked in vain.
    pub(crate) tries: u32,
}

/// What the courier reads.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) asks: mpsc::UnboundedReceiver<Ask>,
}

/// Where notices and questions are left.
#[derive(Debug)]
pub(crate) struct Desk {
    notices: mpsc::Sender<Notice>,
    asks: mpsc::UnboundedSender<Ask>,
    inbox: Mutex<Option<Inbox>>,
}

impl Default for Desk {
    fn default() -> Desk {
        let ((notices, notices_in), (asks, asks_in)) = (mpsc::channel(WAITING), mpsc::unbounded_channel());
        Desk { notices, asks, inbox: Mutex::new(Some(Inbox { notices: notices_in, asks: asks_in })) }
    }
}

impl Desk {
    /// What the courier reads; `None` from the second time on.
    pub(crate) fn inbox(&self) -> Option<Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves a notice. Where too many wait it is dropped: the outbox has it.
    pub(crate) fn leave(&self, notice: Notice) {
        let _ = self.notices.try_send(notice);
    }

    /// Asks whether the node may begin. No answer comes once the courier has gone.
    pub(crate) fn ask(&self, node: NodeId) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        // One run asks at a time for each slot: there are no more than these.
        let _ = self.asks.send(Ask { node, answer, tries: 0 });
        answered
    }
}
