//! The last stalls, with an explanation each on the page of a task, and the jobs that were held at several deaths of workers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use heartline::PoisonSuspect;
use serde::Deserialize;

use crate::state::{Board, Frame, answer, encoded};
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
    suspects: Vec<Accused>,
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
    told: String,
}

/// A job that was held at several deaths of workers.
struct Accused {
    task: String,
    id: String,
    told: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> Response {
    let now = board.inspector.now().await;
    let seen = match board.look().await {
        Ok((seen, _)) => seen,
        Err(e) => return board.failed(&e),
    };
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
            Err(e) if e.is_retryable() => return board.failed(&e),
            _ => {}
        }
        page.is_any_at_large = suspects.iter().any(PoisonSuspect::is_at_large);
        page.suspects = suspects.iter().map(|job| accused(job, now)).collect();
        if asked.task.is_empty() {
            let unread = seen.fleet.tasks.iter().filter(|task| task.fault.is_some());
            let named = unread.map(|task| task.task.as_str());
            let list = seen.fleet.away.tasks.is_some().then_some("all tasks (their list is unreachable)");
            page.unread = named.chain(list).collect::<Vec<_>>().join(", ");
            page.rows = stalls
                .into_iter()
                .take(SHOWN)
                .map(|stall| Row {
                    at: exact(stall.at, now),
                    task: stall.task.clone(),
                    id: stall.id.to_string(),
                    action: stall.action.to_string(),
                    told: format!(
                        "{}, held by {}, stall {}",
                        stall.reason,
                        stall.worker.as_ref().map_or("no worker", |worker| worker.as_str()),
                        stall.stalled_count
                    ),
                })
                .collect();
        }
    }
    if !asked.task.is_empty() {
        if let Err(unknown) = board.must_know(&asked.task).await {
            return unknown;
        }
        let cursor = Some(asked.cursor.as_str()).filter(|cursor| !cursor.is_empty());
        let stalls = match board.inspector.stalls(&asked.task, cursor).await {
            Ok(stalls) => stalls,
            Err(e) => return board.failed(&e),
        };
        let late = board.late.of((&asked.task, ""), |_| true, board.inspector.rejected_outcomes(&asked.task, LATE));
        let late = match late.await {
            Ok(late) => late,
            Err(e) => return board.failed(&e),
        };
        page.rows = stalls
            .stalls
            .iter()
            .map(|report| Row {
                at: exact(report.stall.at, now),
                task: asked.task.clone(),
                id: report.stall.id.to_string(),
                action: report.stall.action.to_string(),
                told: report.to_string(),
            })
            .collect();
        page.late = late
            .iter()
            .map(|late| {
                let by = late.late_by.map_or(String::new(), |by| format!(", {} late", span(by)));
                (exact(late.at, now), late.id.to_string(), format!("{} by {}{by}", late.outcome, late.worker))
            })
            .collect();
        let next = stalls.next.as_deref();
        page.next =
            next.map(|next| board.url(&format!("/stalls?task={}&cursor={}", encoded(&asked.task), encoded(next))));
    }
    answer(&page)
}

fn accused(job: &PoisonSuspect, now: SystemTime) -> Accused {
    let alone = match job.alone {
        0 => "never alone".to_owned(),
        1 => "once alone".to_owned(),
        times => format!("{times} times alone"),
    };
    let is = job.state.map_or("removed since".to_owned(), |state| format!("now {state}"));
    let told = format!("held at {} deaths of workers, {alone}; last {}; {is}", job.deaths, relative(job.last_at, now));
    Accused { task: job.task.clone(), id: job.id.to_string(), told }
}
