//! The outcome of a run.

use std::time::Duration;

use super::drive::HandlerEnd;
use crate::backend::report::Disposition;
use crate::error::job_error::{ErrorMap, JobError, mapped};
use crate::error::{Error, NoteError};
use crate::escape::Escaped;
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::job::snooze::Snoozes;
use crate::job::subgraph_result::with_graph;
use crate::limits::NODE_LIMIT;
use crate::options::resolved::Resolved;
use crate::runtime::handler::RunError;
use crate::runtime::held_jobs::{Flags, HeldJob};

/// What to report. The flags of the held job decide, not the error that an interrupted handler returned.
pub(super) fn outcome(
    ended: HandlerEnd,
    held: &HeldJob,
    (attempt, snoozes): (u32, Snoozes),
    options: &Resolved,
    errors: &[ErrorMap],
) -> Disposition {
    let flags = held.flags();
    let not_its_fault =
        flags.intersects(Flags::INTERRUPTED) || flags.intersects(Flags::FROZEN) || flags.intersects(Flags::GOT_FROZEN);
    let ended = match ended {
        HandlerEnd::Returned(Err(RunError::Handler(e))) => HandlerEnd::Returned(Err(handled(mapped(e, errors)))),
        ended => ended,
    };
    let (code, message, retry_after, fatal) = match ended {
        HandlerEnd::Returned(Ok(Some(value))) if held.id.is_of_workflow() && value.len() > NODE_LIMIT => {
            let what =
                format!("the value has {} bytes; the limit for a node of a workflow is {NODE_LIMIT}", value.len());
            (codes::CODEC.to_owned(), what, None, true)
        }
        HandlerEnd::Returned(Ok(value)) => {
            let grown = held.notes.grown().map(|graph| with_graph(value.as_deref(), &graph));
            return Disposition::Completed(grown.or(value));
        }
        HandlerEnd::Dropped => return Disposition::Requeue,
        _ if not_its_fault => return Disposition::Requeue,
        HandlerEnd::Returned(Err(RunError::Handler(e))) => {
            if let Some(delay) = e.snooze_delay() {
                let snoozes = Snoozes { snoozed: snoozes.snoozed.saturating_add(1), ..snoozes };
                return Disposition::Snooze { snoozes, delay };
            }
            if let Some(rest) = e.rest() {
                return Disposition::RateLimited { rest };
            }
            (e.code().to_owned(), e.message(), e.retry_after_delay(), e.is_fatal())
        }
        HandlerEnd::Returned(Err(RunError::Undecodable(code, message))) => {
            if let Some(delay) = options.undecodable_pause(snoozes.undecodable) {
                let error = StoredError { code: code.to_owned(), message };
                let snoozes = Snoozes { undecodable: snoozes.undecodable.saturating_add(1), ..snoozes };
                return Disposition::Undecodable { snoozes, delay, error };
            }
            (code.to_owned(), message, None, true)
        }
        HandlerEnd::Returned(Err(RunError::Codec(message))) => (codes::CODEC.to_owned(), message, None, true),
        HandlerEnd::Panicked(message) => (codes::PANIC.to_owned(), message, None, false),
        HandlerEnd::TimedOut(timeout) => {
            (codes::TIMEOUT.to_owned(), format!("the run took longer than {timeout:?}"), None, false)
        }
    };
    if fatal {
        return Disposition::Failed { attempt, error: StoredError { code, message } };
    }
    failed(code, message, attempt, retry_after, options)
}

/// The error of a handler. If the handler could not read an encoded value, the job is as one with an unreadable payload: another worker
/// may have the codec.
fn handled(e: JobError) -> RunError {
    let of_call = e.downcast_ref::<Error>().and_then(|e| match e {
        Error::PayloadCodec { source, .. } => Some(source.code()),
        _ => None,
    });
    let of_note = || match e.downcast_ref::<NoteError>()? {
        NoteError::PayloadCodec { source, .. } => Some(source.code()),
        _ => None,
    };
    match of_call.or_else(of_note).filter(|_| !e.is_fatal()) {
        Some(code) => RunError::Undecodable(code, e.message()),
        None => RunError::Handler(e),
    }
}

/// A failed run, which may be retried.
pub(super) fn failed(
    code: String,
    message: String,
    attempt: u32,
    retry_after: Option<Duration>,
    options: &Resolved,
) -> Disposition {
    let error = StoredError { code, message };
    let is_retried = options.retried_codes.as_ref().is_none_or(|codes| codes.contains(&error.code));
    if is_retried && options.retry.attempts_left(attempt) {
        Disposition::Retry { attempt, delay: retry_after.unwrap_or_else(|| options.retry.delay(attempt)), error }
    } else {
        Disposition::Failed { attempt, error }
    }
}

/// Logs a failed run.
pub(super) fn log_run(task: &str, job_id: &JobId, outcome: &Disposition, options: &Resolved) {
    let max_attempts = options.retry.max_attempts();
    match outcome {
        Disposition::Retry { attempt, delay, error } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, attempt, max_attempts, code, error = %Escaped(message), next_in = ?delay,
                "a run failed; the job will be retried");
        }
        Disposition::Failed { attempt, error } => {
            let StoredError { code, message } = error;
            tracing::error!(task, %job_id, attempt, max_attempts, code, error = %Escaped(message), "the job failed");
        }
        Disposition::Undecodable { delay, error, .. } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, code, error = %Escaped(message), next_in = ?delay,
                "the handler cannot decode the payload; the job is postponed");
        }
        Disposition::Snooze { delay, .. } => tracing::debug!(task, %job_id, next_in = ?delay, "snoozed"),
        Disposition::RateLimited { rest } => {
            tracing::info!(task, %job_id, ?rest, "the handler is rate limited; no job of the task starts meanwhile");
        }
        Disposition::Completed(_)
        | Disposition::Hooked(_)
        | Disposition::HookRetry { .. }
        | Disposition::Drop
        | Disposition::Requeue
        | Disposition::Begin { .. }
        | Disposition::Unstart => {}
    }
}
