//! `lua/reconcile.lua`: resolves the jobs of dead workers at once.

use super::close;
use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use super::sweep::{StalledJob, stalled_jobs};
use crate::error::Error;

/// How many buckets of the locks one call looks at.
const LOOK: usize = 500;

/// Why the jobs are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'a> {
    /// Their processes are gone.
    Proof,
    /// Somebody says that the workers are dead.
    Of(&'a str),
}

/// How far the locks were looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place(String);

impl Place {
    /// The beginning.
    pub(crate) fn begin() -> Place {
        Place("0".to_owned())
    }
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) enum ReconcileReply {
    /// What was decided, and where to go on; `None` at the end.
    Reconciled { next: Option<Place>, resolved: Vec<StalledJob> },
    /// The server has lost the options of the task, and decided nothing.
    Undeclared,
}

/// Ends the lines of calls of the dead: a copy of one of their calls that comes late must not claim for nobody.
pub(crate) async fn close_lines(conn: &mut impl Connection, keys: &TaskKeys, dead: &[String]) -> Result<(), Error> {
    for worker in dead {
        close::close(conn, keys, worker).await?;
    }
    Ok(())
}

/// Resolves some of the jobs that the dead hold, from the place on.
pub(crate) async fn reconcile(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    word: Word<'_>,
    place: &Place,
    dead: &[String],
) -> Result<ReconcileReply, Error> {
    let mut call = scripts::RECONCILE.on(keys);
    call.arg(worker);
    match word {
        Word::Proof => call.arg("worker_restarted").arg(""),
        Word::Of(by) => call.arg("manual").arg(by),
    };
    let mut reply = call.arg(&place.0).arg(LOOK).arg(dead).call(conn).await?;
    let word: String = reply.next()?;
    if word == "undeclared" {
        return Ok(ReconcileReply::Undeclared);
    }
    let cursor: String = reply.next()?;
    let has_more = reply.next::<u8>()? == 1;
    let resolved = stalled_jobs(&reply.next::<Vec<scripts::Text>>()?);
    let next = (has_more || cursor != "0").then_some(Place(cursor));
    Ok(ReconcileReply::Reconciled { next, resolved })
}
