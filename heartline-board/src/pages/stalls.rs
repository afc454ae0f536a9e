//! The last stalls, with an explanation each on the page of a task, and the jobs that were held at several deaths of workers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use heartline::{FleetReport, PoisonSuspect, StallReport, StalledEvent};
use serde::Deserialize;

use crate::state::{Board, Frame, PageResult, answer, encoded};
use heartline::inspect::text::{exact, relative, span};

/// The most stalls on the page of all tasks.
const SHOWN: usize = 100;

/// The most late outcomes on the page of a task.
const LATE: usize = 20;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    task: String,
    #[serde(default)]
    cursor: String,
}

#[derive(Template)]
#[template(path = "stalls.html")]
struct StallsPage {
    frame: Frame,
    task: String,
    rows: Vec<Row>,
    suspects: Vec<SuspectRow>,
    /// Whether one of them may kill its process now.
    is_any_at_large: bool,
    /// The tasks that cannot be read now.
    unread: String,
    late: Vec<(String, String, String)>,
    next: Option<String>,
}

struct Row {
    at: String,
    task: String,
    id: String,
    action: String,
    text: String,
}

/// A job that was held at several deaths of workers.
struct SuspectRow {
    task: String,
    id: String,
    text: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let now = board.inspector.now().await;
    let (seen, _) = board.or_failed(board.look().await)?;
    let mut page = StallsPage {
        frame: board.frame(&head),
        task: asked.task.clone(),
        rows: Vec::new(),
        suspects: Vec::new(),
        is_any_at_large: false,
        unread: String::new(),
        late: Vec::new(),
        next: None,
    };
    {
        let log = board.stalls.log(&board.inspector, &seen.fleet.tasks).await;
        let stalls = log.latest();
        let is_asked = |task: &str| asked.task.is_empty() || task == asked.task;
        let mut suspects = PoisonSuspect::among(
            stalls.iter().copied().filter(|stall| is_asked(&stall.task) && !stall.was_survived(&seen.fleet.workers)),
        );
        match board.inspector.look_up_suspects(&mut suspects).await {
            Err(e) if e.is_retryable() => return Err(board.failed(&e)),
            _ => {}
        }
        page.is_any_at_large = suspects.iter().any(PoisonSuspect::is_at_large);
        page.suspects = suspects.iter().map(|job| suspect_row(job, now)).collect();
        if asked.task.is_empty() {
            page.unread = unread(&seen.fleet);
            page.rows = stalls.into_iter().take(SHOWN).map(|stall| latest_row(stall, now)).collect();
        }
    }
    if !asked.task.is_empty() {
        of_task(&board, &asked, now, &mut page).await?;
    }
    Ok(answer(&page))
}

/// Fills in the stalls and the late outcomes of one task.
///
/// # Errors
/// The page for a task that does not exist or cannot be read.
async fn of_task(board: &Board, asked: &Asked, now: SystemTime, page: &mut StallsPage) -> Result<(), Response> {
    board.must_know(&asked.task).await?;
    let cursor = Some(asked.cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let stalls = board.or_failed(board.inspector.stalls(&asked.task, cursor).await)?;
    let late = board.late.of((&asked.task, ""), |_| true, board.inspector.rejected_outcomes(&asked.task, LATE));
    let late = board.or_failed(late.await)?;
    page.rows = stalls.stalls.iter().map(|report| explained_row(report, now)).collect();
    page.late = late
        .iter()
        .map(|late| {
            let by = late.late_by.map_or(String::new(), |by| format!(", {} late", span(by)));
            (exact(late.at, now), late.id.to_string(), format!("{} by {}{by}", late.outcome, late.worker))
        })
        .collect();
    let next = stalls.next.as_deref();
    page.next = next.map(|next| board.url(&format!("/stalls?task={}&cursor={}", encoded(&asked.task), encoded(next))));
    Ok(())
}

/// The tasks that cannot be read now.
fn unread(fleet: &FleetReport) -> String {
    let unread = fleet.tasks.iter().filter(|task| task.fault.is_some());
    let named = unread.map(|task| task.task.as_str());
    let list = fleet.away.tasks.is_some().then_some("all tasks (their list is unreachable)");
    named.chain(list).collect::<Vec<_>>().join(", ")
}

/// A row on the page of all tasks.
fn latest_row(stall: &StalledEvent, now: SystemTime) -> Row {
    let holder = stall.worker.as_ref().map_or("no worker", |worker| worker.as_str());
    row(stall, format!("{}, held by {holder}, stall {}", stall.reason, stall.stalled_count), now)
}

/// A row on the page of a task.
fn explained_row(report: &StallReport, now: SystemTime) -> Row {
    row(&report.stall, report.to_string(), now)
}

fn row(stall: &StalledEvent, text: String, now: SystemTime) -> Row {
    let StalledEvent { task, id, action, at, .. } = stall;
    Row { at: exact(*at, now), task: task.clone(), id: id.to_string(), action: action.to_string(), text }
}

fn suspect_row(job: &PoisonSuspect, now: SystemTime) -> SuspectRow {
    let alone = match job.alone {
        0 => "never alone".to_owned(),
        1 => "once alone".to_owned(),
        times => format!("{times} times alone"),
    };
    let is = job.state.map_or("removed since".to_owned(), |state| format!("now {state}"));
    let text = format!("held at {} deaths of workers, {alone}; last {}; {is}", job.deaths, relative(job.last_at, now));
    SuspectRow { task: job.task.clone(), id: job.id.to_string(), text }
}
