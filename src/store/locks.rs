//! Beat and sweep.

use std::time::Duration;

use super::scripts::{self, Text};
use super::{Connection, TaskKeys};
use crate::error::Error;
use crate::options::to_ms;

/// The most jobs that one beat names.
pub(crate) const BEAT_BATCH: usize = 500;

/// The fewest candidates that one sweep may resolve. In a table that was once large, SSCAN visits ten buckets for each
/// one that it may return, so a small count is what keeps a call short.
pub(crate) const LEAST_SWEEP: usize = 25;

/// The most candidates that one sweep may resolve, where round trips are long: some milliseconds of the server's time.
pub(crate) const MOST_SWEEP: usize = 200;

/// For how many running jobs it takes one call of [`shrink`].
pub(crate) const SHRINK_STEP: u64 = 4000;

/// A job that a beat names.
#[derive(Clone, Debug)]
pub(crate) struct HeldJob {
    pub(crate) id: crate::job::JobId,
    pub(crate) fence: u64,
}

/// The answer to a beat.
#[derive(Debug)]
pub(crate) struct Beaten {
    pub(crate) epoch: u64,
    pub(crate) interval: Duration,
    pub(crate) lost: Vec<u64>,
    pub(crate) cancelled: Vec<u64>,
    /// When the options in force were declared, ms by the clock of the server; 0: it has lost them.
    pub(crate) declared_at: u64,
    /// Before this beat.
    pub(crate) candidates: u64,
    /// Before this beat.
    pub(crate) active: u64,
}

/// Extends the locks of `extend`, and asks about those of `watch` without extending them; together at most
/// [`BEAT_BATCH`].
pub(crate) async fn extend_locks(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    ask: Duration,
    extend: &[HeldJob],
    watch: &[HeldJob],
) -> Result<Beaten, Error> {
    let mut call = scripts::EXTEND_LOCKS.on(keys);
    call.arg(worker).arg(to_ms(ask)).arg(extend.len()).arg(watch.len());
    for job in extend.iter().chain(watch) {
        call.arg(job.id.as_str());
    }
    for job in extend.iter().chain(watch) {
        call.arg(job.fence);
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    Ok(Beaten {
        epoch: reply.next()?,
        interval: Duration::from_millis(reply.next()?),
        lost: reply.next()?,
        cancelled: reply.next()?,
        declared_at: reply.next()?,
        candidates: reply.next()?,
        active: reply.next()?,
    })
}

/// A stalled job and what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) id: String,
    pub(crate) count: u64,
    pub(crate) action: String,
    pub(crate) worker: String,
    /// The fence under which the worker held it; 0 when nobody did.
    pub(crate) fence: u64,
}

/// The answer to a sweep.
#[derive(Debug)]
pub(crate) enum SweepReply {
    /// Candidates were decided; when `snapshot` is set none is left, and a new epoch began.
    Swept { epoch: u64, interval: Duration, cursor: String, snapshot: bool, left: u64, resolved: Vec<Resolved> },
    /// Another epoch is in force.
    Moved { epoch: u64, interval: Duration },
    /// The interval in force is longer than what was waited.
    Early { epoch: u64, interval: Duration },
    /// The server has lost the options of the task, and decided nothing.
    Undeclared,
}

/// Resolves up to `limit` candidates of the epoch that the caller watched for `waited`.
#[allow(clippy::too_many_arguments)]
pub(crate) async fn sweep(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    ask: Duration,
    epoch: u64,
    waited: Duration,
    cursor: &str,
    limit: usize,
) -> Result<SweepReply, Error> {
    let mut call = scripts::SWEEP.on(keys);
    // Rounded down: to claim a wait that was not watched is the one thing that must not happen.
    call.arg(worker).arg(to_ms(ask)).arg(epoch).arg(waited.as_millis() as u64).arg(cursor).arg(limit);
    let mut reply = call.call(conn).await?;
    let word: String = reply.next()?;
    if word == "undeclared" {
        return Ok(SweepReply::Undeclared);
    }
    let (epoch, interval) = (reply.next()?, Duration::from_millis(reply.next()?));
    match word.as_str() {
        "swept" => {
            let cursor = reply.next()?;
            let snapshot = reply.next::<u8>()? == 1;
            let left = reply.next()?;
            let words: Vec<Text> = reply.next()?;
            let resolved = words
                .chunks_exact(5)
                .map(|c| Resolved {
                    id: c[0].0.clone(),
                    count: c[1].0.parse().unwrap_or(0),
                    action: c[2].0.clone(),
                    worker: c[3].0.clone(),
                    fence: c[4].0.parse().unwrap_or(0),
                })
                .collect();
            Ok(SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved })
        }
        "moved" => Ok(SweepReply::Moved { epoch, interval }),
        "early" => Ok(SweepReply::Early { epoch, interval }),
        other => Err(reply.unexpected(other)),
    }
}

/// Moves the server on in shrinking the table of the candidates, so that a sweep that looks for a few of once very many
/// takes no milliseconds. Of use when less than a thousandth of the running jobs is left, once for each [`SHRINK_STEP`].
pub(crate) async fn shrink(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    scripts::SHRINK.on(keys).call(conn).await.map(drop)
}
