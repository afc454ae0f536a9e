//! The payload of a job that is about to run.

use std::time::Duration;

use crate::backend::address::Role;
use crate::backend::keys::Key;
use crate::backend::narrow::{Closings, unreadable};
use crate::backend::settle::Payload;
use crate::backend::timeouts::{doubled, response_time};
use crate::backend::values;
use crate::error::Error;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// Why a run has no payload.
pub(super) enum Missing {
    /// The run must not begin.
    NotToBegin,
    /// The server does not send the payload, for this reason.
    Unreadable(String),
}

/// The payload, or for a hook the value or error. If it did not come with the claim, it is read from this column.
pub(super) async fn of(
    task: &TaskRuntime,
    worker: &WorkerShared,
    held: &HeldJob,
    payload: Payload,
    column: Key,
) -> Result<Vec<u8>, Missing> {
    match payload {
        Payload::Here(payload) => Ok(payload),
        // Boxed: it is rarely needed, and would make every run as large as a connection attempt.
        Payload::Apart(bytes) => Box::pin(fetch(task, worker, held, bytes, column)).await,
    }
}

/// Reads a payload that is too large for a claim, on a separate connection, while the job stays held.
async fn fetch(
    task: &TaskRuntime,
    worker: &WorkerShared,
    held: &HeldJob,
    bytes: usize,
    column: Key,
) -> Result<Vec<u8>, Missing> {
    let reading = async {
        let (mut timeout, mut closings, mut is_logged) = (response_time(bytes), Closings::default(), false);
        loop {
            // The semaphore is never closed.
            let turns = worker.large_reads(&task.keys);
            let turn = turns.acquire().await;
            let mut connected = false;
            let read = async {
                let mut conn = worker.store.answering(Role::Shared, &task.keys).await?;
                connected = true;
                let read = values::value(&mut conn, &task.keys, column, held.id.as_str());
                tokio::time::timeout(timeout, read).await.unwrap_or_else(|_| Err(Error::late()))
            };
            let e = match worker.store.steady(read).await {
                // Without a payload the job no longer exists.
                Ok(payload) => return payload.ok_or(Missing::NotToBegin),
                Err(e) => e,
            };
            drop(turn);
            let (task, job_id) = (&task.name, &held.id);
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!(%task, %job_id, bytes, error = %e.chain(), "a large payload cannot be read; will retry");
            }
            if e.is_late() {
                timeout = doubled(timeout);
            }
            if closings.failed(connected && e.is_broken() && !e.is_late()) {
                return Err(Missing::Unreadable(unreadable("payload", bytes, &e)));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        payload = reading => payload,
        () = held.wait_for(Flags::NOT_TO_BEGIN) => Err(Missing::NotToBegin),
    }
}
