//! Writes notes of handlers, even while these block every thread of the user's runtime: progress every second,
//! checkpoints every heartbeat period. Uses its own connection, since a checkpoint may be large and must not delay a
//! heartbeat.

use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::note::{self, RunNote};
use crate::backend::timeouts::{doubled, response_time};
use crate::clock;
use crate::error::Error;
use crate::limits::BATCH_BYTES;
use crate::runtime::held_jobs::Flags;

/// How often the progress of a job is written.
const PROGRESS: Duration = Duration::from_secs(1);

/// Writes notes until the keeper's runtime ends.
pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    let task = &watch.task;
    let period = task.beat_period();
    let (mut conn, mut next_checkpoints, mut timeout) = (None, clock::now(), Duration::ZERO);
    loop {
        let left = task.held.all().iter().any(|held| held.notes.has_checkpoint());
        tokio::select! {
            () = task.bells.noted.notified() => {}
            () = tokio::time::sleep(next_checkpoints.since(clock::now())), if left => {}
        }
        let now = clock::now();
        let with_checkpoints = now >= next_checkpoints;
        if with_checkpoints {
            next_checkpoints = now.after(period);
        }
        // The run of a finished job reports its own notes.
        let held = task.held.all().into_iter().filter(|held| !held.flags().intersects(Flags::FINISHED));
        let notes: Vec<RunNote> = held.filter_map(|held| held.pending_note(with_checkpoints)).collect();
        match write(&keeper, &watch, &mut conn, timeout, notes).await {
            Ok(()) => {
                timeout = Duration::ZERO;
                keeper.answered("notes", task.of());
            }
            Err(e) => {
                conn = None;
                if e.is_late() {
                    // Large values over a slow link need time.
                    timeout = doubled(timeout.max(response_time(BATCH_BYTES)));
                }
                // Notes that were not written remain.
                task.bells.noted.notify_one();
                keeper.failed_at("notes", task.of(), &e);
                if !e.is_outage() {
                    tokio::time::sleep(period).await;
                }
            }
        }
        // Wait, so that later notes are written together, the latest of each job.
        tokio::time::sleep(PROGRESS.min(period)).await;
    }
}

async fn write(
    keeper: &Keeper,
    watch: &TaskMonitor,
    connection: &mut Option<(OwnConnection, u64)>,
    timeout: Duration,
    notes: Vec<RunNote>,
) -> Result<(), Error> {
    let (task, worker) = (&watch.task, &keeper.worker);
    for call in note::in_calls(notes) {
        let primary_epoch = worker.store.primary_epoch();
        let (conn, primary_epoch) = match connection {
            Some(connection) => connection,
            None => connection.insert((worker.store.dedicated(Role::Keeper, None).await?, primary_epoch)),
        };
        let time = timeout.max(response_time(call.iter().map(RunNote::bytes).sum()));
        let noted = note::note(conn, &task.keys, worker.id.as_str(), &call);
        let answer = tokio::time::timeout(time, worker.store.steady_since(*primary_epoch, noted)).await;
        let lost = answer.unwrap_or_else(|_| Err(Error::late()))?;
        for written in &call {
            if let Some(held) = task.held.get(written.fence) {
                held.notes.written(written);
                if lost.contains(&written.fence) {
                    keeper.lost(task, &held);
                }
            }
        }
    }
    Ok(())
}
