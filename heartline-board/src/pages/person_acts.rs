//! What people did to a task and its jobs.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::PersonAct;
use heartline::inspect::text::many;
use serde::Deserialize;

use crate::frame::Frame;
use crate::state::{Board, PageResult, answer};

/// The most acts on the page.
const LISTED: usize = 100;

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
}

#[derive(Template)]
#[template(path = "person_acts.html")]
struct PersonActsPage {
    frame: Frame,
    task: String,
    now: SystemTime,
    acts: Arc<Vec<PersonAct>>,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    board.must_know(&asked.task).await?;
    let read = board.inspector.person_acts(&asked.task, LISTED);
    let acts = board.or_failed(board.person_acts.of((&asked.task, ""), |_| true, read).await)?;
    let now = board.inspector.now().await;
    Ok(answer(&PersonActsPage { frame: board.frame(&head), task: asked.task, now, acts }))
}

/// What was done, for people.
fn word(act: &PersonAct) -> String {
    let what = match act.act.as_str() {
        "paused" => "Paused the task",
        "resumed" => "Resumed the task",
        "worker_quiet" => "Asked a worker to claim no more jobs",
        "worker_resumed" => "Asked a worker to claim jobs again",
        "cancelled" => "Cancelled",
        "manually_retried" => "Retried",
        "promoted" => "Ran now",
        "removed" => "Removed",
        "requeued" => "Requeued",
        "stalled" => "Decided about silent jobs",
        other => return format!("{} ({other})", many(act.jobs, "job")),
    };
    if act.jobs > 0 { format!("{what}: {}", many(act.jobs, "job")) } else { what.to_owned() }
}
