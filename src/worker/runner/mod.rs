//! One run of a job, as a pipeline:
//!
//! | step | from → to |
//! |---|---|
//! | [`payload`] | what was claimed → the bytes of the input |
//! | `enter` | a node of a workflow → whether the node is still open, and the headers of its instance |
//! | `begin` | the claim → the context for the handler, the observers and the log |
//! | [`drive`] | the handler's future → how it ended: returned, panicked, timed out, dropped |
//! | [`hook`] | as `drive`, for a job whose outcome is stored: its hook runs, not its handler |
//! | [`outcome`] | how the run ended, and what interrupted it → the `Disposition`, for observers and the log |
//! | `run` | the outcome → the `Report` that settle carries |

mod drive;
mod hook;
mod outcome;
mod own;
mod payload;

pub(super) use own::Own;
use payload::Missing;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use tracing::Instrument;

use super::panics::{self, guarded};
use crate::backend::keys::Key;
use crate::backend::report::{Disposition, Report};
use crate::backend::settle::{Claimed, Payload};
use crate::backend::workflow::advance::Entered;
use crate::clock;
use crate::job::failure::codes;
use crate::job::node_id::NodeId;
use crate::job::snooze::Snoozes;
use crate::job::state::JobState;
use crate::job::tick::Tick;
use crate::options::overrides::Headers;
use crate::options::resolved::Resolved;
use crate::runtime::context::{Context, Run};
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::note_store::NoteStore;
use crate::runtime::observer::{Observed, RunInfo};
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// Runs the job once. Returns what to report.
///
/// The job gets an outcome even if the handler panics, or a subscriber of `tracing` around it.
pub(super) async fn run(
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    note_store: Arc<NoteStore>,
    held: Arc<HeldJob>,
    job: Claimed,
    own: Own,
) -> Report {
    let stored_bytes = job.outcome.map_or(0, |stored| stored.payload_bytes);
    let (attempt, payload_bytes) = (job.failed_attempts.saturating_add(1), job.payload.bytes() + stored_bytes);
    let hooked = job.outcome.map(|stored| stored.failed_hooks);
    let (id, fence, began, options) = (held.id.clone(), held.fence, Instant::now(), Arc::clone(&own.options));
    let running = AssertUnwindSafe(run_once(task, worker, note_store, Arc::clone(&held), job, own));
    let (outcome, ran) = running.catch_unwind().await.unwrap_or_else(|panic| {
        // Waking may run user code too.
        let _ = guarded(|| held.set(Flags::FINISHED));
        let message = panics::message_of(panic);
        let outcome = match hooked {
            Some(failed) => hook::failed(codes::PANIC.to_owned(), message, failed, None, &options),
            None => outcome::failed(codes::PANIC.to_owned(), message, attempt, None, &options),
        };
        (outcome, began.elapsed())
    });
    Report { id, fence, outcome, attempt, payload_bytes, ran }
}

async fn run_once(
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    note_store: Arc<NoteStore>,
    held: Arc<HeldJob>,
    mut job: Claimed,
    own: Own,
) -> (Disposition, Duration) {
    let (options, delay) = (own.options, own.delay);
    let attempt = job.failed_attempts.saturating_add(1);
    let dispatched_at = dispatched_at(&job);
    let from = match job.outcome.map(|stored| stored.state) {
        None => Key::Payload,
        Some(JobState::Completed) => Key::Result,
        Some(_) => Key::Error,
    };
    let payload = std::mem::replace(&mut job.payload, Payload::Here(Vec::new()));
    let payload = match payload::of(&task, &worker, &held, payload, from).await {
        Ok(payload) => payload,
        Err(missing) => {
            held.set(Flags::FINISHED);
            let hooked = job.outcome.map(|stored| stored.failed_hooks);
            return (without_payload(missing, &task.name, &held, (attempt, hooked), &options), Duration::ZERO);
        }
    };
    let mut of_instance = None;
    if job.outcome.is_none() {
        match enter(&worker, &held).await {
            Ok(headers) => of_instance = headers,
            Err(closed) => {
                held.set(Flags::FINISHED);
                return (closed, Duration::ZERO);
            }
        }
    }
    if held.flags().intersects(Flags::NOT_BEGUN) {
        held.begins();
    }
    // The runtime or the process may have been frozen since the claim.
    if held.flags().intersects(Flags::NOT_TO_BEGIN) || clock::now() >= held.deadline() {
        held.set(Flags::FINISHED);
        return (Disposition::Requeue, Duration::ZERO);
    }
    let max_attempts = options.retry.max_attempts();
    let is_first = attempt == 1 && job.stalled_count == 0 && job.snoozes == Snoozes::default();
    let waited = dispatched_at
        .filter(|_| is_first)
        .and_then(|at| at.checked_add(delay))
        .map(|since| SystemTime::now().duration_since(since).unwrap_or_default());
    if let Some(waited) = waited.filter(|_| job.outcome.is_none()) {
        task.run_times.waited.add(waited);
    }
    let dispatched_at = dispatched_at.unwrap_or(UNIX_EPOCH);
    let run = ((own.headers, of_instance), own.tick, max_attempts, dispatched_at);
    let context = context_of(&task, &worker, note_store, &held, &job, run);
    if let Some(stored) = job.outcome {
        let (began, runs) = (Instant::now(), (job.failed_attempts, job.stalled_count));
        let outcome = hook::run((&task, &worker), &held, context, stored, payload, runs, &options).await;
        return (outcome, began.elapsed());
    }
    let worker_id = &worker.id;
    let observed = Observed::begin(
        Arc::clone(&worker.observers),
        RunInfo {
            task: &task.name,
            id: &held.id,
            attempt,
            max_attempts,
            stalled_count: job.stalled_count,
            dispatched_at,
            waited,
            worker: worker_id,
        },
    );
    let span = tracing::info_span!("attempt", task = %task.name, job_id = %held.id, attempt, %worker_id,
        headers = tracing::field::Empty);
    let run = drive::drive(|| (task.handler)(context, payload), (&task, &worker), &held, &options);
    let ended = run.instrument(span.clone()).await;
    // The outcome of a job that is lost or cancelled does not count.
    let had_to_stop = held.flags().intersects(Flags::TOLD_TO_STOP) && !held.flags().intersects(Flags::TAKEN);
    let ran = observed.ran();
    task.run_times.ran.add(ran);
    held.set(Flags::FINISHED);
    // An error is user code too: the job gets an outcome even if reading the error panics.
    let outcome = guarded(|| outcome::outcome(ended, &held, (attempt, job.snoozes), &options, &task.errors))
        .unwrap_or_else(|panic| outcome::failed(codes::PANIC.to_owned(), panic, attempt, None, &options));
    observed.end(&outcome, ran);
    if had_to_stop && matches!(outcome, Disposition::Completed(_)) {
        let _ = guarded(|| {
            span.in_scope(|| tracing::info!("the handler returned Ok although it should stop; the job completes"))
        });
    }
    if !matches!(outcome, Disposition::Completed(_) | Disposition::Requeue) {
        // A log subscriber is user code too.
        let _ = guarded(|| span.in_scope(|| outcome::log_run(&task.name, &held.id, &outcome, &options)));
    }
    (outcome, ran)
}

/// Asks the workflow of a node whether its run may begin, however long the answer takes. The job stays held meanwhile. Returns the
/// headers of its instance. There are none if the job belongs to no workflow.
///
/// # Errors
/// What to report if the run must not begin.
async fn enter(worker: &WorkerShared, held: &HeldJob) -> Result<Option<Arc<Headers>>, Disposition> {
    let Some(node) = NodeId::of(&held.id) else { return Ok(None) };
    tokio::select! {
        // If the worker's workflow runner is gone, no answer comes.
        answer = worker.workflow_queue.ask(node) => match answer {
            Ok(Entered::Go(headers)) => Ok(headers),
            Ok(Entered::Stale) => Err(Disposition::Drop),
            Err(_) => Err(Disposition::Requeue),
        },
        () = held.wait_for(Flags::NOT_TO_BEGIN) => Err(Disposition::Requeue),
    }
}

/// The headers of the job, and those of its instance.
type RunHeaders = (Headers, Option<Arc<Headers>>);

/// The context of the handler or of the hook, which has its own counts.
fn context_of(
    task: &TaskRuntime,
    worker: &WorkerShared,
    note_store: Arc<NoteStore>,
    held: &Arc<HeldJob>,
    job: &Claimed,
    ((headers, of_instance), tick, max_attempts, dispatched_at): (RunHeaders, Option<Tick>, u32, SystemTime),
) -> Context {
    let runs = (job.failed_attempts, job.stalled_count);
    let (failed, stalled) = job.outcome.map_or(runs, |stored| (stored.failed_hooks, stored.stalled_hooks));
    Context(Arc::new(Run {
        held: Arc::clone(held),
        task: Arc::clone(&task.name),
        worker: worker.id.clone(),
        failed_attempts: failed,
        max_attempts,
        stalled_count: stalled,
        snoozed_count: if job.outcome.is_some() { 0 } else { job.snoozes.snoozed },
        recovery: job.recovery.clone(),
        is_hook: job.outcome.is_some(),
        dispatched_at,
        headers,
        of_instance,
        tick,
        data: Arc::clone(&worker.data),
        note_store: Some(note_store),
        given: Vec::new(),
    }))
}

/// What to report if the payload is missing, for a run or for a hook that failed `hooked` times before.
fn without_payload(
    missing: Missing,
    task: &str,
    held: &HeldJob,
    (attempt, hooked): (u32, Option<u32>),
    options: &Resolved,
) -> Disposition {
    let Missing::Unreadable(message) = missing else { return Disposition::Requeue };
    let code = codes::PAYLOAD_UNREADABLE.to_owned();
    let failed = match hooked {
        Some(failed) => hook::failed(code, message, failed, None, options),
        None => outcome::failed(code, message, attempt, None, options),
    };
    // A log subscriber is user code too.
    let _ = guarded(|| match hooked {
        Some(_) => hook::log_run(task, &held.id, &failed),
        None => outcome::log_run(task, &held.id, &failed, options),
    });
    failed
}

fn dispatched_at(job: &Claimed) -> Option<SystemTime> {
    let stored = job.dispatched_at_ms.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_millis(at)));
    stored.or_else(|| job.id.created_at())
}
