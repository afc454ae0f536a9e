//! The workers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::{HolderReport, WorkerReport, WorkerState};
use serde::Deserialize;

use crate::state::{Board, Frame, PageResult, answer};
use heartline::inspect::describe::{Beat, beats, watch_word, worker_state};
use heartline::inspect::text::{placed, relative, span};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Asked {
    all: String,
    /// How many workers earlier pages listed.
    from: usize,
}

/// The most workers on a page, and the most heartbeats.
const LISTED: usize = 300;

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    rows: Vec<Row>,
    beats: Vec<Beat>,
    gone: usize,
    /// Why the list is incomplete.
    away: Option<String>,
    /// How many more there are, and the address of the next page.
    more: Option<(usize, String)>,
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

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let (seen, _) = board.or_failed(board.look().await)?;
    let leaves = |worker: &&WorkerReport| worker.leaves_jobs(&seen.fleet.holders);
    let is_shown =
        |worker: &&WorkerReport| !asked.all.is_empty() || worker.state != WorkerState::Gone || leaves(worker);
    let mut shown: Vec<&WorkerReport> = seen.fleet.workers.iter().filter(is_shown).collect();
    let gone = seen.fleet.workers.len() - shown.len();
    shown.sort_by_key(|worker| !leaves(worker));
    let more = shown.len().saturating_sub(asked.from.saturating_add(LISTED));
    let page: Vec<&WorkerReport> = shown.into_iter().skip(asked.from).take(LISTED).collect();
    let now = board.inspector.now().await;
    let beats = beats(page.iter().copied(), now);
    Ok(answer(&WorkersPage {
        frame: board.frame(&head),
        rows: page.iter().map(|worker| row(worker, &seen.fleet.holders, now)).collect(),
        beats: beats.into_iter().take(LISTED).collect(),
        gone,
        away: (seen.fleet.away.diagnoses().pop())
            .filter(|_| seen.fleet.away.workers.is_some())
            .map(|diagnosis| format!("{diagnosis}; {}.", placed(&diagnosis.hint(), &board.command_options()))),
        more: (more > 0).then(|| {
            let all = if asked.all.is_empty() { "" } else { "&all=yes" };
            (more, board.url(&format!("/workers?from={}{all}", asked.from.saturating_add(LISTED))))
        }),
    }))
}

fn row(worker: &WorkerReport, holders: &[HolderReport], now: SystemTime) -> Row {
    let is_live = worker.state.is_live();
    // Of a dead worker, show only numbers that were read from Redis.
    let is_known = |task: &str| holders.iter().any(|report| report.task == task);
    let held = worker.tasks.iter().map(|its| {
        let is_told = is_live || (its.held > 0 && is_known(&its.task));
        if is_told { format!("{} {}/{}", its.task, its.held, its.slots) } else { its.task.clone() }
    });
    Row {
        id: worker.worker.to_string(),
        state: worker_state(worker),
        class: match worker.state {
            _ if worker.leaves_jobs(holders) => "bad",
            WorkerState::Live => "good",
            WorkerState::Silent => "bad",
            _ => "dim",
        },
        host: worker.host.clone(),
        pid: worker.pid.map_or(String::new(), |pid| pid.to_string()),
        version: worker.version.clone(),
        started: worker.started_at.map_or(String::new(), |at| relative(at, now)),
        seen: relative(worker.last_seen_at, now),
        held: held.collect::<Vec<_>>().join(", "),
        runtime: match worker.runtime_blocked {
            _ if !is_live => "–".to_owned(),
            Some(blocked) => format!("blocked {}", span(blocked)),
            None => "ok".to_owned(),
        },
        watch: if is_live { watch_word(worker, now) } else { "–".to_owned() },
    }
}
