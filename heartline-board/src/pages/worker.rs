//! A worker: its data, and its heartbeats and watches by task.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use heartline::{Error, Inspector, WorkerReport, WorkerState};
use serde::Deserialize;

use crate::badge::{self, Badge};
use crate::frame::Frame;
use crate::state::{Board, PageResult, answer};
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
    /// What a person can ask of it: `quiet_worker`, `resume_worker` or nothing.
    quiet_act: Option<&'static str>,
}

/// The act that changes whether the worker claims jobs.
fn quiet_act(worker: &WorkerReport) -> Option<&'static str> {
    match worker.state {
        WorkerState::Gone => None,
        _ if worker.quiet.is_some() => Some("resume_worker"),
        _ => Some("quiet_worker"),
    }
}

/// Changes whether the worker claims jobs. Returns what was done.
pub(crate) async fn act(inspector: &Inspector, act: &str, worker: &str) -> Result<String, Error> {
    if act == "quiet_worker" {
        let before = inspector.quiet_worker(worker).await?;
        return Ok(before.map_or_else(
            || format!("{worker} claims no more jobs, and finishes those that it runs."),
            |quiet| format!("{worker} was quiet already, by {}.", quiet.by),
        ));
    }
    let was_quiet = inspector.resume_worker(worker).await?.is_some();
    Ok(format!("{worker} {}.", if was_quiet { "claims jobs again" } else { "was not quiet" }))
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
        quiet_act: quiet_act(&worker).filter(|act| board.may(&head, act)),
        can_be_dead: board.may(&head, "recover_worker") && holds && !worker.state.is_live(),
        holds,
        frame: board.frame(&head),
        worker,
        now,
    }))
}
