//! The last stalls of a task, each explained.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::{Board, Frame, answer, encoded};
use crate::text::exact;

#[derive(Deserialize)]
pub(crate) struct Asked {
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
    next: Option<String>,
}

struct Row {
    at: String,
    id: String,
    action: String,
    told: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, Query(asked): Query<Asked>) -> Response {
    let cursor = Some(asked.cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let page = match board.inspector.stalls(&asked.task, cursor).await {
        Ok(page) => page,
        Err(e) => return board.failed(&e),
    };
    let now = SystemTime::now();
    let rows = page.stalls.iter().map(|report| Row {
        at: exact(report.stall.at, now),
        id: report.stall.id.to_string(),
        action: report.stall.action.to_string(),
        told: report.to_string(),
    });
    let next = page.next.as_deref();
    let next = next.map(|next| board.url(&format!("/stalls?task={}&cursor={}", encoded(&asked.task), encoded(next))));
    answer(&StallsPage { frame: board.frame(), rows: rows.collect(), next, task: asked.task })
}
