use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use exports::{EXPORT, Export};
use heartline::{App, CancelOutcome, JobStatus, shutdown_signal};
use serde_json::{Value, json};

async fn create(State(app): State<App>, Json(input): Json<Export>) -> heartline::Result<(StatusCode, Json<Value>)> {
    // When this returns, the job is in Redis.
    let job = EXPORT.dispatch(&app, input).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": job.id() }))))
}

async fn show(State(app): State<App>, Path(id): Path<String>) -> heartline::Result<Json<JobStatus<String>>> {
    // Its state, how often it failed, its last error, its progress and its result.
    Ok(Json(EXPORT.handle(&app, id)?.status().await?))
}

async fn cancel(State(app): State<App>, Path(id): Path<String>) -> heartline::Result<StatusCode> {
    Ok(match EXPORT.handle(&app, id)?.cancel("the customer gave up").await? {
        CancelOutcome::Cancelled => StatusCode::OK,
        // It runs, and its handler was asked to stop.
        CancelOutcome::Requested => StatusCode::ACCEPTED,
        // It has ended already.
        _ => StatusCode::CONFLICT,
    })
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
