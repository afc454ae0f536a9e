//! One run of the hook of a job with a stored outcome.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::drive::{self, HandlerEnd};
use super::outcome::unreadable_value;
use crate::backend::report::Disposition;
use crate::error::job_error::mapped;
use crate::escape::Escaped;
use crate::job::failure::{Failure, StoredError, codes};
use crate::job::id::JobId;
use crate::job::outcome::{Outcome, StoredOutcome};
use crate::job::state::JobState;
use crate::job::subgraph_result::value_of;
use crate::options::resolved::Resolved;
use crate::runtime::context::Context;
use crate::runtime::handler::RunError;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;
use crate::worker::panics::guarded;

/// How long a hook waits for another worker after this one could not read a value.
const UNDECODABLE: Duration = Duration::from_secs(10);

/// Runs the hook once. `stored_json` is the stored value or error. `runs` are the failed runs and the stalls of the handler.
pub(super) async fn run(
    (task, worker): (&TaskRuntime, &WorkerShared),
    held: &Arc<HeldJob>,
    context: Context,
    stored: StoredOutcome,
    stored_json: Vec<u8>,
    runs: (u32, u32),
    options: &Resolved,
) -> Disposition {
    let span = tracing::info_span!("hook", task = %task.name, job_id = %held.id, worker_id = %context.worker_id());
    let outcome = outcome_of(&held.id, stored.state, stored_json, runs);
    let ended = match &task.hook {
        Some(hook) => {
            drive::drive(|| hook(context, outcome), (task, worker), held, options).instrument(span.clone()).await
        }
        // Cannot happen: a worker that claims hooks has one.
        None => HandlerEnd::Dropped,
    };
    held.set(Flags::FINISHED);
    let failed = stored.failed_hooks;
    let ended = guarded(|| disposition(ended, held, failed, options, task));
    let ended = ended.unwrap_or_else(|panic| self::failed(codes::PANIC.to_owned(), panic, failed, None, options));
    // A log subscriber is user code too.
    let _ = guarded(|| span.in_scope(|| log_run(&task.name, &held.id, &ended)));
    ended
}

/// The outcome that the hook gets.
fn outcome_of(id: &JobId, state: JobState, stored_json: Vec<u8>, (failed, stalled): (u32, u32)) -> Outcome<Vec<u8>> {
    if state == JobState::Completed {
        return Outcome::Completed(value_of(&stored_json).to_vec());
    }
    let error = StoredError::from_json(&String::from_utf8_lossy(&stored_json));
    match state {
        JobState::Cancelled => Outcome::Cancelled { reason: error.message },
        _ => Outcome::Failed(Failure::new(id.clone(), error, failed, stalled)),
    }
}

/// What to report about the run.
fn disposition(ended: HandlerEnd, held: &HeldJob, before: u32, options: &Resolved, task: &TaskRuntime) -> Disposition {
    let flags = held.flags();
    let not_its_fault =
        flags.intersects(Flags::INTERRUPTED) || flags.intersects(Flags::FROZEN) || flags.intersects(Flags::GOT_FROZEN);
    match ended {
        HandlerEnd::Returned(Ok(_)) => Disposition::Hooked(None),
        HandlerEnd::Dropped => Disposition::Requeue,
        _ if not_its_fault => Disposition::Requeue,
        HandlerEnd::Returned(Err(RunError::Handler(e))) => {
            let e = mapped(e, &task.errors);
            if let Some(code) = unreadable_value(&e) {
                return undecodable(code, e.message(), before);
            }
            let error = StoredError { code: e.code().to_owned(), message: e.message() };
            if e.is_fatal() {
                return Disposition::Hooked(Some(error));
            }
            // If a snooze used no attempt, a hook could snooze forever and keep its job from ending.
            failed(error.code, error.message, before, e.snooze_delay().or(e.rest()).or(e.retry_after_delay()), options)
        }
        HandlerEnd::Returned(Err(RunError::Undecodable(code, message))) => undecodable(code, message, before),
        HandlerEnd::Returned(Err(RunError::Codec(message))) => {
            // Another version of the hook may accept it.
            failed(codes::CODEC.to_owned(), message, before, None, options)
        }
        HandlerEnd::Panicked(message) => failed(codes::PANIC.to_owned(), message, before, None, options),
        HandlerEnd::TimedOut(timeout) => {
            failed(codes::TIMEOUT.to_owned(), format!("the hook took longer than {timeout:?}"), before, None, options)
        }
    }
}

/// A run of the hook that could not read a value: another worker may have the codec. It counts as no failure, because the job has ended:
/// it cannot be retried after its hook has failed for good.
fn undecodable(code: &str, message: String, before: u32) -> Disposition {
    let error = StoredError { code: code.to_owned(), message };
    Disposition::HookRetry { failed: before, delay: UNDECODABLE, error }
}

/// A failed run of the hook, after `before` failed ones. It may be retried.
pub(super) fn failed(
    code: String,
    message: String,
    before: u32,
    retry_after: Option<Duration>,
    options: &Resolved,
) -> Disposition {
    let (error, failed) = (StoredError { code, message }, before.saturating_add(1));
    if options.retry.attempts_left(failed) {
        Disposition::HookRetry { failed, delay: retry_after.unwrap_or_else(|| options.retry.delay(failed)), error }
    } else {
        Disposition::Hooked(Some(error))
    }
}

/// Logs a failed run.
pub(super) fn log_run(task: &str, job_id: &JobId, disposition: &Disposition) {
    match disposition {
        Disposition::HookRetry { failed, delay, error } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, failed, code, error = %Escaped(message), next_in = ?delay,
                "the hook of a job failed; it will be retried");
        }
        Disposition::Hooked(Some(StoredError { code, message })) => {
            tracing::error!(task, %job_id, code, error = %Escaped(message), "the hook of a job failed; the job ends without it");
        }
        _ => {}
    }
}
