//! How idle tasks learn of new work on a single server: one blocking connection for all of them, and no polling.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::address::Role;
use crate::backend::engine::Store;
use crate::backend::wake_blocking::{self, Taken};
use crate::backoff::{DENIED_PAUSE, Pauses};
use crate::error::Error;
use crate::runtime::incidents::NO_TASK;
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// How long one blocking call lasts if nothing comes.
const BLOCK: Duration = Duration::from_secs(5);

/// Blocks for the idle tasks until the worker stops.
pub(super) async fn run(worker: Arc<WorkerShared>, tasks: Arc<[Arc<TaskRuntime>]>) {
    let mut pauses = Pauses::until_answered();
    while !worker.stopping.is_cancelled() {
        let worked = || {
            pauses.reset();
            worker.answered("wake", NO_TASK);
        };
        match worker.store.steady(serve(&worker, &tasks, worked)).await {
            Ok(()) => return,
            Err(e) => {
                let pause = if e.is_lasting() { DENIED_PAUSE } else { pauses.next() };
                if e.is_refusal() {
                    worker.failed("wake", NO_TASK, &e);
                } else {
                    tracing::debug!(error = %e.chain(), "the wake connection dropped");
                }
                again(&worker, &tasks, pause).await;
            }
        }
    }
}

/// Waits until the next connection is due, and wakes all idle tasks: a marker may have been lost with the earlier connection.
async fn again(worker: &WorkerShared, tasks: &[Arc<TaskRuntime>], pause: Duration) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = worker.stopping.cancelled() => return,
    }
    for task in tasks.iter().filter(|task| worker.wake.wake(task.index)) {
        task.poke.notify_one();
    }
}

/// Serves until the worker stops. Calls `worked` after each answered blocking call.
async fn serve(worker: &WorkerShared, tasks: &[Arc<TaskRuntime>], mut worked: impl FnMut()) -> Result<(), Error> {
    let own = &worker.wake;
    own.disarm();
    let mut conn = worker.store.dedicated(Role::Wake, None).await?;
    let client = answered(wake_blocking::client_id(&mut conn)).await?;
    // The connection is not blocked yet. This only checks the permission to unblock it later.
    answered(wake_blocking::unblock(&mut conn, client)).await?;
    let changed = || async {
        tokio::select! {
            () = own.changed.notified() => {}
            () = worker.stopping.cancelled() => {}
        }
    };
    loop {
        let stopped = worker.stopping.is_cancelled();
        for task in own.take_returned(stopped) {
            answered(wake_blocking::mark_wake(&mut conn, &tasks[task].keys)).await?;
        }
        if stopped {
            return Ok(());
        }
        let armed = own.arm();
        if armed.is_empty() {
            changed().await;
            continue;
        }
        let waited: Vec<_> = armed.iter().map(|&index| &*tasks[index].keys).collect();
        let found = {
            let block = answered(wake_blocking::wait_for_wake(&mut conn, &waited, BLOCK));
            tokio::pin!(block);
            tokio::select! {
                found = &mut block => found?,
                () = changed() => tokio::select! {
                    found = &mut block => found?,
                    Err(e) = unblock(&worker.store, client) => return Err(e),
                }
            }
        };
        worked();
        own.disarm();
        if let Some(Taken::Spare(position)) = found {
            let task = &tasks[armed[position]];
            own.add_spare(task.index);
            task.poke.notify_one();
        }
        if let Some(Taken::Marker(position)) = found {
            let task = &tasks[armed[position]];
            if !worker.stopping.is_cancelled() && own.wake(task.index) {
                task.poke.notify_one();
            } else {
                answered(wake_blocking::mark_wake(&mut conn, &task.keys)).await?;
            }
        }
    }
}

/// Ends our own blocking call over another connection. Repeats that, since the first request may arrive before the blocking call. The
/// caller awaits the answer to the blocking call, so that a marker in it is not lost.
async fn unblock(store: &Store, client: u64) -> Result<Infallible, Error> {
    loop {
        store.call(async |conn| wake_blocking::unblock(conn, client).await).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Limits the time of a call: a server that is frozen or gone must not hold it forever.
async fn answered<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(BLOCK * 3, call).await.map_err(|_| Error::timed_out())?
}
