//! `lua/reconcile.lua`: resolves the jobs of dead workers at once.

use super::presence;
use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use super::sweep::{StalledJob, stalled_jobs};
use crate::error::Error;

/// How many buckets of the locks one call looks at.
const LOOK: usize = 500;

/// Why the jobs are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'a> {
    /// Their processes are gone, or another worker has their exclusive name.
    Proof,
    /// Another worker took their exclusive name, asked them to stop, and waited for that in vain: no stall is counted.
    Replaced,
    /// Somebody says that the workers are dead.
    Of(&'a str),
}

/// Takes the jobs that dead workers hold of a task, call by call: their lines of calls are closed first, since a copy of one of
/// their calls that comes late must not claim for nobody.
#[derive(Debug, Default)]
pub(crate) struct TakeBack {
    is_closed: bool,
    /// The cursor of the locks.
    at: Option<String>,
    is_done: bool,
    /// What was decided so far.
    pub(crate) taken: Vec<StalledJob>,
}

impl TakeBack {
    /// Whether no call is left to make.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Makes the next call. Returns whether the server has the options of the task: without them it decides nothing. A call that failed
    /// is made again by the next step.
    pub(crate) async fn step(
        &mut self,
        conn: &mut impl Connection,
        keys: &TaskKeys,
        worker: &str,
        word: Word<'_>,
        dead: &[String],
    ) -> Result<bool, Error> {
        if !self.is_closed {
            presence::close_calls(conn, keys, dead).await?;
            self.is_closed = true;
        }
        let mut call = scripts::RECONCILE.on(keys);
        call.arg(worker);
        match word {
            Word::Proof => call.arg("worker_restarted").arg(""),
            Word::Replaced => call.arg("replaced").arg(""),
            Word::Of(by) => call.arg("manual").arg(by),
        };
        let mut reply = call.arg(self.at.as_deref().unwrap_or("0")).arg(LOOK).arg(dead).call(conn).await?;
        if reply.next::<String>()? == "undeclared" {
            return Ok(false);
        }
        let cursor: String = reply.next()?;
        let has_more = reply.next::<u8>()? == 1;
        self.taken.extend(stalled_jobs(&reply.next::<Vec<Text>>()?));
        self.is_done = !has_more && cursor == "0";
        self.at = Some(cursor);
        Ok(true)
    }
}
