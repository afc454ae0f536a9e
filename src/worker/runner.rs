//! One run of a job, top to bottom: handler, interruption, outcome. Panics and timeouts are outcomes.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use tokio::task::unconstrained;
use tracing::Instrument;

use super::panics;
use crate::clock;
use crate::error::Error;
use crate::error::job_error::{ErrorMap, mapped};
use crate::job::deferred::Deferred;
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::options::overrides::{Headers, Overrides};
use crate::options::resolved::Resolved;
use crate::process::context::{Context, Run};
use crate::process::handler::{Handler, RunError};
use crate::process::held::{Flags, Held};
use crate::process::observer::{Observed, RunInfo};
use crate::process::shared::WorkerShared;
use crate::process::task::TaskRuntime;
use crate::process::waits::as_handler_of;
use crate::shown::Shown;
use crate::store::address::Role;
use crate::store::patience::{doubled, response_time};
use crate::store::report::Outcome;
use crate::store::settle::{Claimed, Payload};
use crate::store::values;

/// How the handler's future ended.
enum Ended {
    Returned(Result<Option<Vec<u8>>, RunError>),
    Panicked(String),
    TimedOut(Duration),
    /// It was dropped after an interruption.
    Dropped,
}

/// Runs the job once. Says what is to be reported, and how long the handler ran.
///
/// Whatever panics on the way, the handler or a subscriber of `tracing` around it: the job gets its outcome.
pub(super) async fn run(
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    held: Arc<Held>,
    job: Claimed,
    own: Own,
) -> (Outcome, Duration) {
    let (attempt, began, options) = (job.failed_attempts.saturating_add(1), Instant::now(), Arc::clone(&own.options));
    let running = AssertUnwindSafe(run_once(task, worker, Arc::clone(&held), job, own));
    running.catch_unwind().await.unwrap_or_else(|panic| {
        // What is woken may be the user's code too.
        let _ = guarded(|| held.set(Flags::FINISHED));
        (failed(codes::PANIC.to_owned(), panic_message(panic), attempt, None, &options), began.elapsed())
    })
}

async fn run_once(
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    held: Arc<Held>,
    job: Claimed,
    own: Own,
) -> (Outcome, Duration) {
    let Own { options, headers, delay } = own;
    let attempt = job.failed_attempts.saturating_add(1);
    let dispatched_at = dispatched_at(&job);
    let payload = match job.payload {
        Payload::Here(payload) => payload,
        // On the heap: seldom needed, it would make every run as large as a connection that comes up.
        Payload::Apart(bytes) => match Box::pin(fetch(&task, &worker, &held, bytes)).await {
            Some(payload) => {
                held.begins();
                payload
            }
            None => {
                held.set(Flags::FINISHED);
                return (Outcome::Requeue, Duration::ZERO);
            }
        },
    };
    // Much may have happened since it was claimed, where the runtime or the process stood still.
    if held.flags().intersects(Flags::NOT_TO_BEGIN) || clock::now() >= held.deadline() {
        held.set(Flags::FINISHED);
        return (Outcome::Requeue, Duration::ZERO);
    }
    let (observer, data) = (worker.observer.clone(), Arc::clone(&worker.data));
    let worker = worker.id.clone();
    let max_attempts = options.retry.max_attempts();
    let (name, id) = (Arc::clone(&task.name), held.id.clone());
    let is_first = attempt == 1 && job.stalled_count == 0 && job.deferred == Deferred::default();
    let waited = dispatched_at
        .filter(|_| is_first)
        .and_then(|at| at.checked_add(delay))
        .map(|since| SystemTime::now().duration_since(since).unwrap_or_default());
    let dispatched_at = dispatched_at.unwrap_or(UNIX_EPOCH);
    let observed = Observed::begin(
        observer,
        RunInfo {
            task: &name,
            id: &id,
            attempt,
            max_attempts,
            stalled_count: job.stalled_count,
            dispatched_at,
            waited,
            worker: &worker,
        },
    );
    let span = tracing::info_span!("attempt", task = %task.name, job_id = %held.id, attempt, worker_id = %worker);
    let context = Context(Arc::new(Run {
        held: Arc::clone(&held),
        task: Arc::clone(&task.name),
        worker: worker.clone(),
        failed_attempts: job.failed_attempts,
        max_attempts,
        stalled_count: job.stalled_count,
        snoozed_count: job.deferred.snoozed,
        dispatched_at,
        headers,
        data,
    }));
    let ended = drive(&task.handler, context, payload, &held, &options).instrument(span.clone()).await;
    let ran = observed.ran();
    held.set(Flags::FINISHED);
    // An error is the user's code too: whatever it does when it is read, the job gets its outcome.
    let outcome = guarded(|| outcome(ended, &held, (attempt, job.deferred), &options, &task.errors))
        .unwrap_or_else(|panic| failed(codes::PANIC.to_owned(), panic, attempt, None, &options));
    observed.end(&outcome, ran);
    if !matches!(outcome, Outcome::Completed(_) | Outcome::Requeue) {
        // What takes log lines is the user's code too.
        let _ = guarded(|| span.in_scope(|| tell(&task.name, &held.id, &outcome, &options)));
    }
    (outcome, ran)
}

/// Logs a run that failed.
fn tell(task: &str, job_id: &JobId, outcome: &Outcome, options: &Resolved) {
    let max_attempts = options.retry.max_attempts();
    match outcome {
        Outcome::Retry { attempt, delay, error } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, attempt, max_attempts, code, error = %Shown(message), next_in = ?delay,
                "a run failed; the job is retried");
        }
        Outcome::Failed { attempt, error } => {
            let StoredError { code, message } = error;
            tracing::error!(task, %job_id, attempt, max_attempts, code, error = %Shown(message), "the job failed");
        }
        Outcome::Undecodable { delay, error, .. } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, code, error = %Shown(message), next_in = ?delay,
                "the payload is no input of this version of the handler; the job is put off");
        }
        Outcome::Snooze { delay, .. } => tracing::debug!(task, %job_id, next_in = ?delay, "snoozed"),
        Outcome::Completed(_) | Outcome::Requeue => {}
    }
}

/// Reads a payload that is too large to come with others, on a connection of its own, while the job is held and beaten for.
/// None when the run is not to begin any more.
async fn fetch(task: &TaskRuntime, worker: &WorkerShared, held: &Held, bytes: usize) -> Option<Vec<u8>> {
    let reading = async {
        let mut patience = response_time(bytes);
        loop {
            // Nothing closes it.
            let turn = worker.large_reads.acquire().await;
            let read = async {
                let mut conn = worker.store.dedicated(Role::Pool, None).await?;
                let read = values::payload(&mut conn, &task.keys, held.id.as_str());
                tokio::time::timeout(patience, read).await.unwrap_or_else(|_| Err(Error::late()))
            };
            let e = match read.await {
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

/// Runs code of the user's that may panic.
fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).map_err(panic_message)
}

/// What was dispatched with one job.
pub(super) struct Own {
    /// Those of the task with the job's overrides.
    pub(super) options: Arc<Resolved>,
    headers: Headers,
    delay: Duration,
}

impl Own {
    pub(super) fn of(job: &Claimed, task: &Arc<Resolved>) -> Own {
        let none = || Own { options: Arc::clone(task), headers: Headers::new(), delay: Duration::ZERO };
        if job.overrides.is_empty() {
            return none();
        }
        match serde_json::from_str::<Overrides>(&job.overrides) {
            Ok(overrides) => Own {
                options: Arc::new(task.with(&overrides)),
                headers: overrides.headers,
                delay: overrides.delay.unwrap_or_default(),
            },
            Err(e) => {
                tracing::warn!(job_id = %job.id, error = %Shown(&e.to_string()),
                    "the job's own options cannot be read; the task's are used");
                none()
            }
        }
    }
}

fn dispatched_at(job: &Claimed) -> Option<SystemTime> {
    let stored = job.dispatched_at_ms.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_millis(at)));
    stored.or_else(|| job.id.created_at())
}

/// Polls the handler until it ends, its time is over, or it was interrupted and its grace is over.
async fn drive(handler: &Handler, context: Context, payload: Vec<u8>, held: &Arc<Held>, options: &Resolved) -> Ended {
    // The call itself is inside the guard too: a handler may panic before it returns its future.
    let running = as_handler_of(held.clone(), async { handler(context, payload).await });
    let mut running = Box::pin(AssertUnwindSafe(running).catch_unwind());
    // After a shutdown's grace the driver drops all handlers together.
    let taken = async {
        held.wait_for(Flags::TAKEN).await;
        tokio::time::sleep(options.cancel_grace).await;
    };
    let at_deadline = async {
        held.wait_for(Flags::GIVE_UP).await;
        // Nobody else can hold the job before the deadline; past it this run must be over.
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
    // A handler that yields only when the budget of its task is spent leaves none for what comes behind it.
    let ended = tokio::select! {
        biased;
        ended = &mut running => match ended {
            Ok(returned) => Ended::Returned(returned),
            Err(panic) => Ended::Panicked(panic_message(panic)),
        },
        () = unconstrained(taken) => Ended::Dropped,
        () = unconstrained(at_deadline) => Ended::Dropped,
        timeout = unconstrained(time_out) => Ended::TimedOut(timeout),
    };
    // What the handler holds may panic when it is dropped; that must not take the outcome with it.
    if let Err(panic) = guarded(|| drop(running)) {
        tracing::warn!(job_id = %held.id, panic = %Shown(&panic), "the handler panicked while it was dropped");
    }
    ended
}

fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panics::text_of(&*panic).unwrap_or("the handler panicked");
    let place = panics::place_of(text).map(|place| format!(", at {place}")).unwrap_or_default();
    let text = text.chars().take(1000).chain(place.chars()).collect();
    // What a panic carries may panic again when it is dropped; then it is leaked.
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

/// What is reported: the held entry decides, not the error that an interrupted handler returned.
fn outcome(
    ended: Ended,
    held: &Held,
    (attempt, deferred): (u32, Deferred),
    options: &Resolved,
    errors: &[ErrorMap],
) -> Outcome {
    let flags = held.flags();
    let not_its_fault =
        flags.intersects(Flags::INTERRUPTED) || flags.intersects(Flags::FROZEN) || flags.intersects(Flags::TOLD_FROZEN);
    let (code, message, retry_after, fatal) = match ended {
        Ended::Returned(Ok(value)) => return Outcome::Completed(value),
        Ended::Dropped => return Outcome::Requeue,
        _ if not_its_fault => return Outcome::Requeue,
        Ended::Returned(Err(RunError::Handler(e))) => {
            let e = mapped(e, errors);
            if let Some(delay) = e.snooze_delay() {
                let deferred = Deferred { snoozed: deferred.snoozed.saturating_add(1), ..deferred };
                return Outcome::Snooze { deferred, delay };
            }
            (e.code().to_owned(), e.message(), e.retry_after_delay(), e.is_fatal())
        }
        Ended::Returned(Err(RunError::Undecodable(message))) => {
            if let Some(delay) = options.undecodable_pause(deferred.undecodable) {
                let error = StoredError { code: codes::CODEC.to_owned(), message };
                let deferred = Deferred { undecodable: deferred.undecodable.saturating_add(1), ..deferred };
                return Outcome::Undecodable { deferred, delay, error };
            }
            (codes::CODEC.to_owned(), message, None, true)
        }
        Ended::Returned(Err(RunError::Codec(message))) => (codes::CODEC.to_owned(), message, None, true),
        Ended::Panicked(message) => (codes::PANIC.to_owned(), message, None, false),
        Ended::TimedOut(timeout) => {
            (codes::TIMEOUT.to_owned(), format!("the run took longer than {timeout:?}"), None, false)
        }
    };
    if fatal {
        return Outcome::Failed { attempt, error: StoredError { code, message } };
    }
    failed(code, message, attempt, retry_after, options)
}

/// A run that failed and may be followed by another.
fn failed(code: String, message: String, attempt: u32, retry_after: Option<Duration>, options: &Resolved) -> Outcome {
    let error = StoredError { code, message };
    if options.retry.attempts_left(attempt) {
        Outcome::Retry { attempt, delay: retry_after.unwrap_or_else(|| options.retry.delay(attempt)), error }
    } else {
        Outcome::Failed { attempt, error }
    }
}
