//! A new run of an instance: what did not complete runs once more.

use super::{Mover, unreadable};
use crate::error::Error;
use crate::limits::NODE_BATCH;
use crate::store::flow_retry::{self, Again};
use crate::store::flow_state::FlowPlace;
use crate::store::keys::TaskKeys;
use crate::store::patience::RESPONSE_TIMEOUT;

/// How often a new run is written anew whose nodes have completed meanwhile.
const MOVES: usize = 100;

/// What became of a new run of an instance.
#[derive(Debug)]
pub(crate) enum Retried {
    /// It runs; what came of opening what is ready, which workers go on with.
    Begun(Result<(), Error>),
    /// It stands here, and is let be.
    Stands(FlowPlace),
    /// So many nodes are open: handlers of them may run.
    Busy(u64),
    Unknown,
}

impl Mover {
    /// Lets what did not complete of an instance run once more; `begun`: only where somebody has begun that, and went no further.
    pub(crate) async fn retry(&self, keys: &TaskKeys, instance: &str, begun: bool) -> Result<Retried, Error> {
        let mut moved = 0;
        loop {
            let Some(seen) = self.state(keys, instance).await? else { return Ok(Retried::Unknown) };
            let is_let_be = matches!(seen.place, FlowPlace::Running | FlowPlace::Completed);
            if is_let_be || begun && !seen.is_stopping {
                return Ok(Retried::Stands(seen.place));
            }
            let Some(shape) = self.shape(keys, instance, &seen.digest).await? else {
                let lost = serde::de::Error::custom("its graph is not there any more");
                return if begun { Ok(Retried::Unknown) } else { Err(unreadable(keys.task(), instance, lost)) };
            };
            let Some((_, states)) = self.node_states(keys, instance, shape.nodes.len()).await? else {
                return Ok(Retried::Unknown);
            };
            match self.again(keys, instance, &shape.states_again(&states), seen.turn).await? {
                // Of a shape that somebody wrote by hand that may be so for ever.
                Again::Moved if moved == MOVES => return Ok(Retried::Stands(seen.place)),
                Again::Part | Again::Moved => moved += 1,
                Again::Run(run) => return Ok(Retried::Begun(self.open(keys, instance, run).await)),
                Again::Busy(open) => return Ok(Retried::Busy(open)),
                Again::Unknown => return Ok(Retried::Unknown),
                Again::Changed => match self.state(keys, instance).await? {
                    None => return Ok(Retried::Unknown),
                    Some(now) if now.turn == seen.turn => return Ok(Retried::Stands(seen.place)),
                    Some(_) => {}
                },
            }
        }
    }

    /// Writes these states of nodes, in parts.
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
            let retry = |mut conn| async move { flow_retry::retry(&mut conn, keys, instance, turn, some, last).await };
            match self.store.ask(RESPONSE_TIMEOUT, retry).await? {
                Again::Part if last.is_none() => {}
                answer => return Ok(answer),
            }
        }
    }
}
