//! A new run of an instance: nodes that did not complete run again.

use super::{WorkflowProgress, unreadable};
use crate::backend::keys::TaskKeys;
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::backend::workflow::control::{self, Again};
use crate::error::Error;
use crate::job::instance::WorkflowState;
use crate::limits::NODE_BATCH;

/// How often the write of a new run is repeated if nodes completed meanwhile.
const MOVES: usize = 100;

/// What a retry did.
#[derive(Debug)]
pub(crate) enum Retried {
    /// The new run has begun. Holds the result of opening its ready nodes. If that failed, workers continue.
    Begun(Result<(), Error>),
    /// The instance was not changed. Holds its state.
    Unchanged(WorkflowState),
    /// Some nodes are open, so their handlers may run. Holds how many.
    Busy(u64),
    Unknown,
}

impl WorkflowProgress {
    /// Runs the incomplete nodes of an instance again. With `begun`, it only continues a retry that has begun.
    pub(crate) async fn retry(&self, keys: &TaskKeys, instance: &str, begun: bool) -> Result<Retried, Error> {
        let mut moved = 0;
        loop {
            let Some(seen) = self.state(keys, instance).await? else { return Ok(Retried::Unknown) };
            let is_let_be = matches!(seen.place, WorkflowState::Running | WorkflowState::Completed);
            if is_let_be || begun && !seen.is_stopping {
                return Ok(Retried::Unchanged(seen.place));
            }
            let Some(shape) = self.shape(keys, instance, &seen.digest).await? else {
                let lost = serde::de::Error::custom("its graph is missing");
                return if begun { Ok(Retried::Unknown) } else { Err(unreadable(keys.task(), instance, lost)) };
            };
            let Some((_, states)) = self.node_states(keys, instance, shape.nodes.len()).await? else {
                return Ok(Retried::Unknown);
            };
            match self.again(keys, instance, &shape.states_again(&states), seen.turn).await? {
                // If a person edited the shape, this may never end.
                Again::Moved if moved == MOVES => return Ok(Retried::Unchanged(seen.place)),
                Again::Part | Again::Moved => moved += 1,
                Again::Run(run) => return Ok(Retried::Begun(self.open(keys, instance, run).await)),
                Again::Busy(open) => return Ok(Retried::Busy(open)),
                Again::Unknown => return Ok(Retried::Unknown),
                Again::Changed => match self.state(keys, instance).await? {
                    None => return Ok(Retried::Unknown),
                    Some(now) if now.turn == seen.turn => return Ok(Retried::Unchanged(seen.place)),
                    Some(_) => {}
                },
            }
        }
    }

    /// Writes the new states of nodes, in parts.
    async fn again(
        &self,
        keys: &TaskKeys,
        instance: &str,
        states: &[(u32, String)],
        turn: u64,
    ) -> Result<Again, Error> {
        let mut done = 0;
        loop {
            let some = &states[done..states.len().min(done + NODE_BATCH)];
            done += some.len();
            let last = (done == states.len()).then_some(done);
            let retry = |mut conn| async move { control::retry(&mut conn, keys, instance, turn, some, last).await };
            match self.store.ask(RESPONSE_TIMEOUT, retry).await? {
                Again::Part if last.is_none() => {}
                answer => return Ok(answer),
            }
        }
    }
}
