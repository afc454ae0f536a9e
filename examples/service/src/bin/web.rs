use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use exports::{EXPORT, Export};
use heartline::{App, CancelOutcome, Error, JobState, shutdown_signal};
use serde_json::{Value, json};

async fn create(State(app): State<App>, Json(input): Json<Export>) -> Result<Response, Failed> {
    // When this returns, the job is in Redis.
    let job = EXPORT.dispatch(&app, input).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": job.id() }))).into_response())
}

async fn show(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, Failed> {
    let exports = app.task_ref_for(&EXPORT)?;
    // Its state, how often it failed, and its last error.
    let job = exports.job(&id).await?;
    let handle = exports.handle(&id)?;
    let file = if job.state == JobState::Completed { Some(handle.result().await?) } else { None };
    Ok(Json(json!({ "job": job, "progress": handle.progress().await?, "file": file })))
}

async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode, Failed> {
    let job = app.task_ref_for(&EXPORT)?.handle(&id)?;
    Ok(match job.cancel("the customer gave up").await? {
        CancelOutcome::Cancelled => StatusCode::OK,
        // It runs, and its handler was asked to stop.
        CancelOutcome::Requested => StatusCode::ACCEPTED,
        // It has ended already.
        _ => StatusCode::CONFLICT,
    })
}

struct Failed(Error);

impl From<Error> for Failed {
    fn from(e: Error) -> Failed {
        Failed(e)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            Error::JobNotFound { .. } => StatusCode::NOT_FOUND,
            // An id that cannot be one. Any other fault, such as an option of the task, is one of this program.
            Error::Config(faults) if faults.iter().all(|fault| fault.field == "id") => StatusCode::BAD_REQUEST,
            Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            // Redis is unreachable or refuses writes: the same request may succeed later.
            e if e.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            // With its causes and the address of Redis: for the log, not for the customer.
            tracing::error!("{:?}", self.0);
            return status.into_response();
        }
        (status, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    // While Redis is unreachable, a dispatch is repeated for this time. The default of 10 s is long for a request.
    let app = exports::app().dispatch_timeout(Duration::from_secs(1)).build().await?;
    let routes = Router::new().route("/exports", post(create)).route("/exports/{id}", get(show).delete(cancel));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, routes.with_state(app)).with_graceful_shutdown(shutdown_signal()).await?;
    Ok(())
}
