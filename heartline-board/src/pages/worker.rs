//! A worker: its data, and its heartbeats and watches by task.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use heartline::{Error, WorkerReport};
use serde::Deserialize;

use crate::badge::{self, Badge};
use crate::state::{Board, Frame, PageResult, answer};
use heartline::inspect::describe::{Beat, beats, watches};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    worker: String,
}

/// Corrects what the worker holds from Redis, since its own report is as old as its last presence.
pub(crate) async fn held_by(board: &Board, mut worker: WorkerReport) -> Result<WorkerReport, Error> {
    for its in &mut worker.tasks {
        let report = board.inspector.lock_holders(&its.task).await?;
        let own = report.holders.iter().find(|holder| holder.worker == worker.worker).map(|holder| holder.jobs);
        its.held = own.unwrap_or(if report.is_whole { 0 } else { its.held });
    }
    Ok(worker)
}

#[derive(Template)]
#[template(path = "worker.html")]
struct WorkerPage {
    frame: Frame,
    worker: WorkerReport,
    now: SystemTime,
    badge: Badge,
    beats: Vec<Beat>,
    watches: Vec<String>,
    /// Whether it holds jobs.
    holds: bool,
    /// Whether a person can declare it dead.
    can_be_dead: bool,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let Some(worker) = board.or_failed(board.inspector.worker(&asked.worker).await)? else {
        let text = format!("There is no worker {}. Its record may have been removed.", asked.worker);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such worker", &text));
    };
    let worker = board.or_failed(held_by(&board, worker).await)?;
    let now = board.inspector.now().await;
    let holds = worker.tasks.iter().any(|its| its.held > 0);
    Ok(answer(&WorkerPage {
        badge: badge::of_worker(&worker, false),
        beats: beats([&worker], now),
        watches: watches(&worker, now),
        can_be_dead: board.may(&head, "recover_worker") && holds && !worker.state.is_live(),
        holds,
        frame: board.frame(&head),
        worker,
        now,
    }))
}
