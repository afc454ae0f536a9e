//! The last stalls, with an explanation each on the page of a task, and the jobs that were held at several deaths of workers.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat;
use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::join_all;
use heartline::inspect::describe::stall_reason;
use heartline::{FleetReport, JobId, JobState, PoisonSuspect, RejectedReport, StalledEvent};
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
    /// The state of the job now; `None` if it was not read.
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
    let states = states(&board, &asked, &page.rows).await;
    for row in &mut page.rows {
        let state = states.get(&job_of(row)).copied().flatten();
        let badge =
            |state: Option<JobState>| state.map_or_else(|| Badge::new("plain", "dash", "removed"), badge::of_job);
        row.now = state.map(badge);
    }
    Ok(answer(&page))
}

/// The states of jobs, by task and id: `None` if it cannot be read, `Some(None)` if the job does not exist.
pub(crate) type StalledJobs = BTreeMap<(String, JobId), Option<Option<JobState>>>;

fn job_of(row: &Row) -> (String, JobId) {
    (row.stall.task.clone(), row.stall.id.clone())
}

/// The states of the jobs of the first rows; open pages share them.
async fn states(board: &Board, asked: &Asked, rows: &[Row]) -> Arc<StalledJobs> {
    let jobs: BTreeSet<(String, JobId)> = rows.iter().take(LOOKED_UP).map(job_of).collect();
    let read = async {
        let mut by_task: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
        for (task, id) in &jobs {
            by_task.entry(task).or_default().push(id.clone());
        }
        let reads = by_task.into_iter().map(|(task, ids)| async move {
            let states = board.inspector.job_states(task, &ids).await.unwrap_or_default();
            let states = states.into_iter().map(Some).chain(repeat(None));
            ids.into_iter().map(|id| (task.to_owned(), id)).zip(states).collect::<Vec<_>>()
        });
        Ok(join_all(reads).await.into_iter().flatten().collect())
    };
    let is_whole = |known: &StalledJobs| jobs.iter().all(|job| known.contains_key(job));
    board.stalled.of((&asked.task, &asked.cursor), is_whole, read).await.unwrap_or_default()
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
