//! The last stalls, with an explanation each on the page of a task, and the jobs that were held at several deaths of workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::join_all;
use heartline::inspect::describe::stall_reason;
use heartline::{FleetReport, JobId, PoisonSuspect, RejectedReport, StalledEvent};
use serde::Deserialize;

use crate::badge::{self, Badge};
use crate::frame::Frame;
use crate::state::{Board, PageResult, answer, encoded};

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
    now: SystemTime,
    rows: Vec<Row>,
    suspects: Vec<PoisonSuspect>,
    /// Whether one of them may kill its process now.
    is_any_at_large: bool,
    /// The tasks that cannot be read now.
    unread: String,
    late: Arc<Vec<RejectedReport>>,
    next: Option<String>,
}

/// The most jobs whose states are read.
const LOOKED_UP: usize = 1_000;

/// A stall with its explanation.
struct Row {
    stall: StalledEvent,
    text: String,
    /// The state of the job now; empty if it is not known.
    now: Option<Badge>,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let now = board.inspector.now().await;
    let (seen, _) = board.or_failed(board.look().await)?;
    let mut page = StallsPage {
        frame: board.frame(&head),
        task: asked.task.clone(),
        now,
        rows: Vec::new(),
        suspects: Vec::new(),
        is_any_at_large: false,
        unread: String::new(),
        late: Arc::default(),
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
        page.suspects = suspects;
        if asked.task.is_empty() {
            page.unread = unread(&seen.fleet);
            page.rows = stalls.into_iter().take(SHOWN).map(latest_row).collect();
        }
    }
    if !asked.task.is_empty() {
        of_task(&board, &asked, &mut page).await?;
    }
    look_up_states(&board, &mut page.rows).await;
    Ok(answer(&page))
}

/// Adds the states of the jobs. Those of a task that cannot be read stay unknown.
async fn look_up_states(board: &Board, rows: &mut [Row]) {
    let mut by_task: BTreeMap<String, BTreeMap<JobId, Vec<usize>>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().take(LOOKED_UP) {
        by_task.entry(row.stall.task.clone()).or_default().entry(row.stall.id.clone()).or_default().push(at);
    }
    let reads = by_task.iter().map(|(task, jobs)| async {
        let ids: Vec<JobId> = jobs.keys().cloned().collect();
        board.inspector.job_states(task, &ids).await.unwrap_or_default()
    });
    let found = join_all(reads).await;
    for (jobs, states) in by_task.values().zip(found) {
        for (places, state) in jobs.values().zip(states) {
            let badge = || state.map_or_else(|| Badge::new("plain", "dash", "removed"), badge::of_job);
            places.iter().for_each(|at| rows[*at].now = Some(badge()));
        }
    }
}

/// Fills in the stalls and the late outcomes of one task.
///
/// # Errors
/// The page for a task that does not exist or cannot be read.
async fn of_task(board: &Board, asked: &Asked, page: &mut StallsPage) -> Result<(), Response> {
    board.must_know(&asked.task).await?;
    let cursor = Some(asked.cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let stalls = board.or_failed(board.inspector.stalls(&asked.task, cursor).await)?;
    let late = board.late.of((&asked.task, ""), |_| true, board.inspector.rejected_outcomes(&asked.task, LATE));
    let late = board.or_failed(late.await)?;
    page.rows = stalls
        .stalls
        .into_iter()
        .map(|report| Row { text: report.to_string(), stall: report.stall, now: None })
        .collect();
    page.late = late;
    let next = stalls.next.as_deref();
    page.next = next.map(|next| board.url(&format!("/stalls?task={}&cursor={}", encoded(&asked.task), encoded(next))));
    Ok(())
}

/// The tasks that cannot be read now.
pub(crate) fn unread(fleet: &FleetReport) -> String {
    let unread = fleet.tasks.iter().filter(|task| task.fault.is_some());
    let named = unread.map(|task| task.task.as_str());
    let list = fleet.away.tasks.is_some().then_some("all tasks (their list is unreachable)");
    named.chain(list).collect::<Vec<_>>().join(", ")
}

/// A row on the page of all tasks.
fn latest_row(stall: &StalledEvent) -> Row {
    let holder = stall.worker.as_ref().map_or("no worker", |worker| worker.as_str());
    let text = format!("held by {holder}, stall {}: {}", stall.stalled_count, stall_reason(stall.reason));
    Row { stall: stall.clone(), text, now: None }
}
