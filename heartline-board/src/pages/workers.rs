//! Workers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use heartline::{WorkerReport, WorkerState};
use serde::Deserialize;

use super::{Board, Frame, answer};
use crate::text::{relative, shown, span};
use crate::told::{Beat, beats, worker_state};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Asked {
    all: String,
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    rows: Vec<Row>,
    beats: Vec<Beat>,
    gone: usize,
}

struct Row {
    id: String,
    state: String,
    class: &'static str,
    host: String,
    pid: String,
    version: String,
    started: String,
    seen: String,
    held: String,
    runtime: String,
    watch: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: HeaderMap, Query(asked): Query<Asked>) -> Response {
    let seen = match board.look().await {
        Ok((seen, _)) => seen,
        Err(e) => return board.failed(&e),
    };
    let is_shown = |worker: &&WorkerReport| !asked.all.is_empty() || worker.state != WorkerState::Gone;
    let rows: Vec<Row> = seen.workers.iter().filter(is_shown).map(row).collect();
    let gone = seen.workers.len() - rows.len();
    let beats = beats(seen.workers.iter(), SystemTime::now());
    answer(&WorkersPage { frame: board.frame(&head), rows, beats, gone })
}

fn row(worker: &WorkerReport) -> Row {
    let now = SystemTime::now();
    let held = worker.tasks.iter().map(|its| format!("{} {}/{}", its.task, its.held, its.slots));
    let broken = worker.tasks.iter().flat_map(|its| &its.watches);
    let broken = broken.filter_map(|watch| watch.broken.zip(watch.broken_at)).max_by_key(|(_, at)| *at);
    Row {
        id: worker.worker.to_string(),
        state: worker_state(worker),
        class: match worker.state {
            WorkerState::Live => "good",
            WorkerState::Silent => "bad",
            _ => "dim",
        },
        host: shown(&worker.host),
        pid: worker.pid.map_or(String::new(), |pid| pid.to_string()),
        version: shown(&worker.version),
        started: worker.started_at.map_or(String::new(), |at| relative(at, now)),
        seen: relative(worker.last_seen_at, now),
        held: shown(&held.collect::<Vec<_>>().join(", ")),
        runtime: worker.runtime_blocked.map_or("ok".to_owned(), |blocked| format!("blocked {}", span(blocked))),
        watch: broken.map_or("ok".to_owned(), |(cause, at)| format!("broken {}: {cause}", relative(at, now))),
    }
}
