//! The sweep loop of one task: witness → resolve → the next snapshot.

use std::sync::Arc;

use crate::error::Error;
use crate::store::locks::{self, SWEEP_BATCH, SweepReply};
use crate::worker::clock;
use crate::worker::keeper::{Keeper, TaskWatch};

/// Sweeps whenever the witness rule allows it, until the keeper's runtime ends.
pub(crate) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskWatch>) {
    loop {
        let at = watch.witness().sweep_at();
        match at {
            None => watch.seen.notified().await,
            Some(at) => {
                let pause = at.since(clock::now());
                if !pause.is_zero() {
                    // The note may move while we sleep; it only ever moves to later, or to another interval.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = watch.seen.notified() => {}
                    }
                    continue;
                }
                if watch.witness().may_sweep(clock::now()).is_none() {
                    // The watch was broken, or an own beat is due: its answer rings.
                    tokio::select! {
                        () = watch.seen.notified() => {}
                        () = tokio::time::sleep(watch.task.beat_period() / 4) => {}
                    }
                    continue;
                }
                if let Err(e) = run_once(&keeper, &watch).await {
                    watch.witness().broken(clock::now());
                    if !e.is_retryable() {
                        tracing::error!(task = %watch.task.name, error = %e.chain(), "a sweep was refused; it is tried again");
                    }
                }
            }
        }
    }
}

/// Resolves every candidate of the epoch in bounded calls, and takes the next snapshot. Returns how many it resolved.
async fn run_once(keeper: &Keeper, watch: &TaskWatch) -> Result<usize, Error> {
    let (task, mut cursor, mut total) = (&watch.task, "0".to_owned(), 0);
    loop {
        // Asked anew before each call: the watch may have been broken since the last one.
        let allowed = watch.witness().may_sweep(clock::now());
        let Some((epoch, waited)) = allowed else { return Ok(total) };
        let call = keeper.call(watch, async |conn| {
            let (ask, worker) = (task.options.interval, keeper.worker.id.as_str());
            locks::sweep(conn, &task.keys, worker, ask, epoch, waited, &cursor, SWEEP_BATCH).await
        });
        match call.await? {
            SweepReply::Swept { epoch, interval, cursor: next, snapshot, resolved } => {
                total += resolved.len();
                for job in &resolved {
                    tracing::warn!(task = %task.name, job_id = %job.id, action = %job.action, count = job.count,
                        worker = %job.worker, "stalled");
                }
                watch.witness().told(clock::now(), epoch, interval);
                if snapshot {
                    tracing::debug!(task = %task.name, epoch, resolved = total, "swept");
                    return Ok(total);
                }
                cursor = next;
            }
            SweepReply::Moved { epoch, interval } | SweepReply::Early { epoch, interval } => {
                watch.witness().told(clock::now(), epoch, interval);
                return Ok(total);
            }
        }
    }
}
