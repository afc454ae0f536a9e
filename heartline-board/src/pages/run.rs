//! A background action: its progress and its result.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::frame::Frame;
use crate::runs::{Run, Status};
use crate::state::{Board, answer};

#[derive(Deserialize)]
pub(crate) struct Asked {
    id: String,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    run: Arc<Run>,
    status: Status,
    stop: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> Response {
    match board.runs.get(&asked.id) {
        Some(run) => show(&board, &head, run),
        None => unknown(&board),
    }
}

pub(crate) async fn stop(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> Response {
    let Some(run) = board.runs.get(&asked.id) else { return unknown(&board) };
    if !board.may(&head, &run.act) {
        return board.problem(StatusCode::FORBIDDEN, "You may not do this", "The action continues.");
    }
    run.stop();
    Redirect::to(&url(&board, &run)).into_response()
}

fn unknown(board: &Board) -> Response {
    board.problem(StatusCode::NOT_FOUND, "There is no such action", "It ended long ago, or the board was restarted.")
}

pub(crate) fn url(board: &Board, run: &Run) -> String {
    board.url(&format!("/run?id={}", run.id))
}

pub(crate) fn show(board: &Board, head: &Parts, run: Arc<Run>) -> Response {
    answer(&RunPage { frame: board.frame(head), status: run.status(), stop: url(board, &run), run })
}
