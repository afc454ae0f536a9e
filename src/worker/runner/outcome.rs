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
            let e = mapped(e, errors);
            if let Some(code) = unreadable_value(&e) {
                return undecodable(code, e.message(), (attempt, snoozes), options);
            }
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
            return undecodable(code, message, (attempt, snoozes), options);
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

/// The code of a handler's error, if the handler failed because it could not read an encoded value: another worker may have the codec.
/// `None` if the error is fatal by the user's choice.
pub(super) fn unreadable_value(e: &JobError) -> Option<&'static str> {
    let source = match (e.downcast_ref::<Error>(), e.downcast_ref::<NoteError>()) {
        (Some(Error::PayloadCodec { source, .. }), _) | (_, Some(NoteError::PayloadCodec { source, .. })) => source,
        _ => return None,
    };
    (!e.is_fatal()).then(|| source.code())
}

/// A run that could not read a value. It is postponed, and fails when `undecodable_for` is over.
fn undecodable(code: &str, message: String, (attempt, snoozes): (u32, Snoozes), options: &Resolved) -> Disposition {
    let error = StoredError { code: code.to_owned(), message };
    match options.undecodable_pause(snoozes.undecodable) {
        Some(delay) => {
            let snoozes = Snoozes { undecodable: snoozes.undecodable.saturating_add(1), ..snoozes };
            Disposition::Undecodable { snoozes, delay, error }
        }
        None => Disposition::Failed { attempt, error },
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
    if is_retried(&error.code, options) && options.retry.attempts_left(attempt) {
        Disposition::Retry { attempt, delay: retry_after.unwrap_or_else(|| options.retry.delay(attempt)), error }
    } else {
        Disposition::Failed { attempt, error }
    }
}

/// Whether a run that failed with this code may be followed by another one.
fn is_retried(code: &String, options: &Resolved) -> bool {
    options.retried_codes.as_ref().is_none_or(|codes| codes.contains(code))
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
            let not_retried = (!is_retried(code, options) && options.retry.attempts_left(*attempt))
                .then_some("its code is not in RetryPolicy::on");
            tracing::error!(task, %job_id, attempt, max_attempts, code, not_retried, error = %Escaped(message),
                "the job failed");
        }
        Disposition::Undecodable { delay, error, .. } => {
            let StoredError { code, message } = error;
            tracing::warn!(task, %job_id, code, error = %Escaped(message), next_in = ?delay,
                "the handler cannot decode the payload; the job is postponed");
        }
        Disposition::Snooze { delay, .. } => tracing::debug!(task, %job_id, next_in = ?delay, "snoozed"),
        Disposition::RateLimited { rest } => {
            tracing::info!(task, %job_id, ?rest, "the handler is rate limited; the key of the job rests, or without a key the whole task");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecError;

    #[test]
    fn an_error_about_an_encoded_value_gives_its_code_unless_it_is_fatal() {
        let unknown = || CodecError::Unknown { name: "aes-gcm".to_owned(), bytes: 7 };
        let of_call =
            || JobError::from(Error::PayloadCodec { what: "the value of a node".to_owned(), source: unknown() });
        let failed = CodecError::Failed { name: "aes-gcm".to_owned(), source: "no key".into() };
        let of_note = JobError::from(NoteError::PayloadCodec { what: "checkpoint", source: failed });
        assert_eq!(unreadable_value(&of_call()), Some(codes::CODEC_UNKNOWN));
        assert_eq!(unreadable_value(&of_note), Some(codes::CODEC));
        assert_eq!(unreadable_value(&of_call().fatal()), None);
        assert_eq!(unreadable_value(&JobError::from(Error::Closed)), None);
    }
}
