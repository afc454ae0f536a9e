//! The jobs of all tasks that run now, those held longest first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use axum::http::request::Parts;
use heartline::inspect::describe::{beats, is_overdue};
use heartline::inspect::text::{many, span};
use heartline::{FleetReport, JobRow};

use super::stalls::unread;
use crate::frame::Frame;
use crate::running::{LISTED, Running};
use crate::state::{Board, PageResult, answer};

/// The most tasks that are named.
const NAMED: usize = 10;

#[derive(Template)]
#[template(path = "running.html")]
struct RunningPage {
    frame: Frame,
    /// How many jobs run, and how many of them the page shows.
    counted: String,
    rows: Vec<Row>,
    /// The tasks of which not all running jobs were read.
    cut: String,
    /// The tasks that cannot be read now.
    unread: String,
}

/// A running job.
struct Row {
    task: String,
    id: String,
    worker: String,
    since: Option<SystemTime>,
    /// How long ago it was claimed.
    held: String,
    /// When the last answered heartbeat of its worker was sent.
    heartbeat: String,
    is_at_risk: bool,
    /// Whether it was silent for longer than a healthy job is.
    is_silent: bool,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts) -> PageResult {
    let (seen, _) = board.or_failed(board.look().await)?;
    let fleet = &seen.fleet;
    let names: Vec<String> =
        fleet.tasks.iter().filter(|task| task.counts.running > 0).map(|task| task.task.clone()).collect();
    let look = async { Ok(Running::look(&board.inspector, &names).await) };
    let running = board.or_failed(board.running.of(("", ""), |_| true, look).await)?;
    let now = board.inspector.now().await;
    let all: u64 = fleet.tasks.iter().map(|task| task.counts.running).sum();
    let away = Some(unread(fleet)).filter(|away| !away.is_empty());
    Ok(answer(&RunningPage {
        frame: board.frame(&head),
        counted: match running.rows.len() {
            LISTED => format!("{LISTED} of {}, those held longest", many(all, "job")),
            shown => many(shown as u64, "job"),
        },
        rows: rows(fleet, &running.rows, now),
        cut: first_of(&running.cut),
        unread: away.into_iter().chain(running.faults.iter().cloned()).collect::<Vec<_>>().join(", "),
    }))
}

/// The first of these tasks, and how many more there are.
fn first_of(tasks: &[String]) -> String {
    let named = tasks.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = tasks.len().saturating_sub(NAMED) as u64;
    if more > 0 { format!("{named} and {}", many(more, "more task")) } else { named }
}

fn rows(fleet: &FleetReport, running: &[(String, JobRow)], now: SystemTime) -> Vec<Row> {
    let beats = beats(&fleet.workers, now);
    let beats: HashMap<(&str, &str), _> =
        beats.iter().map(|beat| ((beat.worker.as_str(), beat.task.as_str()), beat)).collect();
    let is_late = |name: &str| fleet.tasks.iter().find(|task| task.task == name).is_some_and(is_overdue);
    let row = |(task, job): &(String, JobRow)| {
        let worker = job.worker.as_ref().map_or_else(String::new, ToString::to_string);
        let beat = beats.get(&(worker.as_str(), task.as_str()));
        Row {
            task: task.clone(),
            id: job.id.to_string(),
            since: job.since,
            held: job.since.map_or_else(String::new, |since| span(now.duration_since(since).unwrap_or_default())),
            heartbeat: beat.map_or_else(|| "unknown".to_owned(), |beat| beat.answered.clone()),
            is_at_risk: beat.is_some_and(|beat| beat.is_at_risk),
            is_silent: job.is_silent && is_late(task),
            worker,
        }
    };
    running.iter().map(row).collect()
}
