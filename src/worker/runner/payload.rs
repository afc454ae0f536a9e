//! The payload of a job that is about to run.

use std::time::Duration;

use crate::error::Error;
use crate::process::held::{Flags, Held};
use crate::process::shared::WorkerShared;
use crate::process::task::TaskRuntime;
use crate::store::address::Role;
use crate::store::keys::Key;
use crate::store::patience::{doubled, response_time};
use crate::store::settle::Payload;
use crate::store::values;

/// The payload, or of a hook what it is told: it came with the claim, or is read now from this column. `None` when the run is not to
/// begin any more.
pub(super) async fn of(
    task: &TaskRuntime,
    worker: &WorkerShared,
    held: &Held,
    payload: Payload,
    column: Key,
) -> Option<Vec<u8>> {
    let payload = match payload {
        Payload::Here(payload) => payload,
        // On the heap: seldom needed, it would make every run as large as a connection that comes up.
        Payload::Apart(bytes) => Box::pin(fetch(task, worker, held, bytes, column)).await?,
    };
    if held.flags().intersects(Flags::NOT_BEGUN) {
        held.begins();
    }
    Some(payload)
}

/// Reads a payload that is too large to come with others, on a connection of its own, while the job is held and beaten for.
/// None when the run is not to begin any more.
async fn fetch(task: &TaskRuntime, worker: &WorkerShared, held: &Held, bytes: usize, column: Key) -> Option<Vec<u8>> {
    let reading = async {
        let mut patience = response_time(bytes);
        loop {
            // Nothing closes them.
            let turns = worker.large_reads(&task.keys);
            let turn = turns.acquire().await;
            let read = async {
                let mut conn = worker.store.dedicated(Role::Pool, None).await?;
                let read = values::value(&mut conn, &task.keys, column, held.id.as_str());
                tokio::time::timeout(patience, read).await.unwrap_or_else(|_| Err(Error::late()))
            };
            let e = match worker.store.steady(read).await {
                Ok(payload) => return payload,
                Err(e) => e,
            };
            drop(turn);
            if e.is_late() {
                patience = doubled(patience);
            }
            tracing::warn!(task = %task.name, job_id = %held.id, bytes, error = %e.chain(),
                "a large payload cannot be read; it is tried again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        payload = reading => payload,
        () = held.wait_for(Flags::NOT_TO_BEGIN) => None,
    }
}
