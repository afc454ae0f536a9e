//! Finds what has a name or an id, and goes to its page if it is one thing.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect};
use heartline::Match;
use serde::Deserialize;

use crate::badge::{self, Badge};
use crate::frame::Frame;
use crate::state::{Board, PageResult, answer};
use crate::steps::Pages;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    q: String,
}

#[derive(Template)]
#[template(path = "find.html")]
struct FindPage {
    frame: Frame,
    asked: String,
    rows: Vec<Row>,
    /// Whether these have exactly the name or the id.
    is_exact: bool,
    /// What could not be searched.
    unread: Vec<String>,
}

/// Something that was found.
struct Row {
    kind: &'static str,
    name: String,
    /// The task or the workflow that it belongs to.
    of: String,
    badge: Option<Badge>,
    url: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let report = board.or_failed(board.inspector.find(&asked.q).await)?;
    let pages = Pages(&board.options.base);
    let mut rows: Vec<Row> = report.matches.iter().filter_map(|found| row(&pages, found)).collect();
    if let ([only], true, true) = (&rows[..], report.is_exact, report.unread.is_empty()) {
        return Ok(Redirect::to(&only.url).into_response());
    }
    rows.sort_by_key(|row| row.kind);
    Ok(answer(&FindPage {
        frame: board.frame(&head),
        asked: asked.q.trim().to_owned(),
        rows,
        is_exact: report.is_exact,
        unread: report.unread,
    }))
}

fn row(pages: &Pages<'_>, found: &Match) -> Option<Row> {
    let (kind, name, of, badge, url) = match found {
        Match::Task { task } => ("task", task.as_str(), "", None, pages.of("task", &[("task", task)])),
        Match::Job { task, id, state } => {
            let (id, badge) = (id.as_str(), badge::of_job(*state));
            ("job", id, task.as_str(), Some(badge), pages.of("job", &[("task", task), ("id", id)]))
        }
        Match::Worker { worker } => ("worker", worker.as_str(), "", None, pages.worker(worker.as_str())),
        Match::Workflow { workflow } => {
            ("workflow", workflow.as_str(), "", None, pages.of("flow", &[("workflow", workflow)]))
        }
        Match::Instance { workflow, id, state } => {
            let url = pages.of("instance", &[("workflow", workflow), ("id", id)]);
            ("instance", id.as_str(), workflow.as_str(), Some(badge::of_flow(*state)), url)
        }
        Match::Schedule { task, name } => {
            let url = pages.of("schedule", &[("task", task), ("name", name)]);
            ("schedule", name.as_str(), task.as_str(), None, url)
        }
        _ => return None,
    };
    Some(Row { kind, name: name.to_owned(), of: of.to_owned(), badge, url })
}
