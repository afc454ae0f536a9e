//! How long a handler may run, and how its run ends.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::unconstrained;

use crate::clock::{self, Moment};
use crate::escape::Escaped;
use crate::options::resolved::Resolved;
use crate::runtime::handler::{RunError, RunFuture};
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;
use crate::runtime::waits::as_handler_of;
use crate::worker::panics;

/// From how long on the log says that a handler blocked its thread. Tokio expects an `await` every 10 to 100 µs; a step that
/// computes for a moment is not logged.
const BLOCKS: Duration = Duration::from_secs(1);

/// How the handler's future ended.
pub(super) enum HandlerEnd {
    Returned(Result<Option<Vec<u8>>, RunError>),
    Panicked(String),
    TimedOut(Duration),
    /// It was dropped after an interruption.
    Dropped,
}

/// Polls the handler or the hook until it ends or times out. After an interruption, polls it until its grace is over.
pub(super) async fn drive(
    begin: impl FnOnce() -> RunFuture,
    (task, worker): (&TaskRuntime, &WorkerShared),
    held: &Arc<HeldJob>,
    options: &Resolved,
) -> HandlerEnd {
    // The guard includes the call: a handler may panic before it returns its future.
    let running = as_handler_of(Arc::clone(&held.waits), async { begin().await });
    let mut running = Box::pin(AssertUnwindSafe(running).catch_unwind());
    // A process that was frozen meanwhile says nothing about its handlers.
    let (mut longest, began) = (Duration::ZERO, clock::now());
    let timed = poll_fn(|cx| {
        let began = Instant::now();
        let polled = running.as_mut().poll(cx);
        longest = longest.max(began.elapsed());
        polled
    });
    // After the shutdown grace the driver drops all handlers together.
    let taken = async {
        held.wait_for(Flags::TAKEN).await;
        tokio::time::sleep(options.cancel_grace).await;
    };
    let at_deadline = async {
        held.wait_for(Flags::GIVE_UP).await;
        // Another worker can hold the job after the deadline, so this run must be over by then.
        tokio::time::sleep(held.deadline().since(clock::now()).min(options.cancel_grace)).await;
    };
    let time_out = async {
        match options.timeout {
            Some(timeout) => {
                tokio::time::sleep(timeout).await;
                timeout
            }
            None => std::future::pending().await,
        }
    };
    // `unconstrained`: otherwise a handler that uses up the budget of its tokio task would leave none for these timers.
    let ended = tokio::select! {
        biased;
        ended = timed => match ended {
            Ok(returned) => HandlerEnd::Returned(returned),
            Err(panic) => HandlerEnd::Panicked(panics::message_of(panic)),
        },
        () = unconstrained(taken) => HandlerEnd::Dropped,
        () = unconstrained(at_deadline) => HandlerEnd::Dropped,
        timeout = unconstrained(time_out) => HandlerEnd::TimedOut(timeout),
    };
    // A value of the handler may panic when it is dropped. The outcome must survive that.
    if let Err(panic) = panics::guarded(|| drop(running)) {
        tracing::warn!(job_id = %held.id, panic = %Escaped(&panic), "the handler panicked while it was dropped");
    }
    if matches!(ended, HandlerEnd::Dropped) {
        // A log subscriber is user code too.
        let _ = panics::guarded(|| {
            tracing::info!(job_id = %held.id, "a handler was dropped: it did not end within the grace after it should stop");
        });
    }
    if longest >= BLOCKS && Moment::from_millis(worker.resumed.load(Ordering::SeqCst)) < began {
        log_blocking(task, longest);
    }
    ended
}

/// Logs once per task that a handler blocked its thread.
fn log_blocking(task: &TaskRuntime, blocked: Duration) {
    if task.blocking_logged.swap(true, Ordering::Relaxed) {
        return;
    }
    // A log subscriber is user code too.
    let _ = panics::guarded(|| {
        tracing::warn!(
            ?blocked,
            "a handler blocked its thread; use TaskDef::blocking, or spawn_blocking for work that does not yield"
        );
    });
}
