//! Errors, and what a call did, as responses of axum.

use axum_core::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

use super::handle::{CancelOutcome, JobHandle};
use crate::error::Error;

/// The arguments of a call that often come from the customer.
const FROM_OUTSIDE: [&str; 4] = ["id", "key", "unique", "headers"];

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Error::JobNotFound { .. } | Error::WorkflowNotFound { .. } => StatusCode::NOT_FOUND,
            Error::ResultGone { .. } => StatusCode::GONE,
            // Any other fault, such as an option of the task, is one of the program.
            Error::Config(faults) if faults.iter().all(|fault| FROM_OUTSIDE.contains(&&*fault.field)) => {
                StatusCode::BAD_REQUEST
            }
            Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Error::JobCancelled { .. } | Error::WorkflowCancelled { .. } | Error::WorkflowBusy { .. } => {
                StatusCode::CONFLICT
            }
            Error::TimedOut { .. } | Error::WorkflowTimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            error if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// With the feature `axum`, a handler of axum may return the error.
///
/// | status | errors |
/// |---|---|
/// | 400 | `Config`, if only the id, the key, the unique key or the headers are wrong |
/// | 404 | `JobNotFound`, `WorkflowNotFound` |
/// | 409 | `JobCancelled`, `WorkflowCancelled`, `WorkflowBusy` |
/// | 410 | `ResultGone` |
/// | 413 | `TooLarge` |
/// | 503 | others for which [`is_retryable`](Error::is_retryable) is true: Redis is unreachable or refuses writes |
/// | 504 | `TimedOut`, `WorkflowTimedOut` |
/// | 500 | all others |
///
/// From 400 to 413 the body is the text of the error. From 500 on it is empty, and the error is logged with its causes, since these are
/// for the operator: they contain the address of Redis.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(status = status.as_u16(), error = %self.chain(), "a request failed");
            return status.into_response();
        }
        (status, self.to_string()).into_response()
    }
}

/// With the feature `axum`: 202, or 200 if the job existed before, and JSON with its `id` and `existed`.
impl<O> IntoResponse for JobHandle<O> {
    fn into_response(self) -> Response {
        accepted(self.id().as_str(), self.existed())
    }
}

pub(crate) fn accepted(id: &str, existed: Option<bool>) -> Response {
    let existed = existed.unwrap_or(false);
    let status = if existed { StatusCode::OK } else { StatusCode::ACCEPTED };
    let json = json!({ "id": id, "existed": existed }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// With the feature `axum`: 200 if the job is cancelled, 202 if its handler was asked to stop, 409 if it has ended.
impl IntoResponse for CancelOutcome {
    fn into_response(self) -> Response {
        let status = match self {
            CancelOutcome::Cancelled => StatusCode::OK,
            CancelOutcome::Requested => StatusCode::ACCEPTED,
            CancelOutcome::TooLate | CancelOutcome::AlreadyTerminal(_) => StatusCode::CONFLICT,
        };
        status.into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config_error::{ConfigError, ConfigErrors};
    use crate::job::id::JobId;

    fn status(error: Error) -> u16 {
        error.into_response().status().as_u16()
    }

    #[test]
    fn an_error_is_a_response_by_what_the_caller_can_do() {
        let (task, id) = ("export".to_owned(), JobId::from_wire("a"));
        assert_eq!(status(Error::JobNotFound { task: task.clone(), id: id.clone() }), 404);
        assert_eq!(status(Error::ResultGone { task: task.clone(), id: id.clone() }), 410);
        assert_eq!(status(Error::JobCancelled { id: id.clone(), reason: "late".to_owned() }), 409);
        assert_eq!(status(Error::TooLarge { what: None, size: 2, limit: 1 }), 413);
        assert_eq!(status(Error::TimedOut { task, id, after: Duration::from_secs(1) }), 504);
        assert_eq!(status(Error::NotReplicated { acked: 0, replicas: 1 }), 503);
        assert_eq!(status(Error::Closed), 500);
        let fault =
            |field: &'static str| Error::Config(ConfigErrors::from(ConfigError::new(field, "x", "is wrong", "y")));
        assert_eq!((status(fault("id")), status(fault("key")), status(fault("timeout"))), (400, 400, 500));
        let of_handle = |existed| accepted("a", existed).status().as_u16();
        assert_eq!((of_handle(Some(false)), of_handle(Some(true)), of_handle(None)), (202, 200, 202));
        let cancel = |outcome: CancelOutcome| outcome.into_response().status().as_u16();
        let ended = CancelOutcome::AlreadyTerminal(crate::JobState::Failed);
        assert_eq!((cancel(CancelOutcome::Requested), cancel(ended)), (202, 409));
    }
}
