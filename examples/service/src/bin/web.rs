use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use exports::{EXPORT, Export};
use heartline::{App, CancelOutcome, JobHandle, JobStatus, Result, shutdown_signal};

async fn create(State(app): State<App>, Json(input): Json<Export>) -> Result<JobHandle<String>> {
    // When this returns, the job is in Redis. The response is 202 with its id, or 200 if the job existed.
    EXPORT.dispatch(&app, input).await
}

async fn show(State(app): State<App>, Path(id): Path<String>) -> Result<Json<JobStatus<String>>> {
    // Its state, how often it failed, its last error, its progress and its result.
    Ok(Json(EXPORT.handle(&app, id)?.status().await?))
}

async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Result<CancelOutcome> {
    // 200: it is cancelled. 202: it runs, and its handler was asked to stop. 409: it has ended already.
    EXPORT.handle(&app, id)?.cancel("the customer gave up").await
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
