//! The pages. Each reads from the `Inspector` and fills a template, which escapes all text.

pub(crate) mod audit;
pub(crate) mod dispatch;
pub(crate) mod find;
pub(crate) mod flows;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod live;
pub(crate) mod overview;
pub(crate) mod person_acts;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod schedule;
pub(crate) mod schedules;
pub(crate) mod server;
pub(crate) mod stalls;
pub(crate) mod task;
pub(crate) mod worker;
pub(crate) mod workers;
pub(crate) mod zone;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::state::Board;

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../../assets/board.css")).into_response()
}

pub(crate) async fn script() -> Response {
    let kind = "text/javascript; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], include_str!("../../assets/board.js")).into_response()
}

pub(crate) async fn icon() -> Response {
    ([(header::CONTENT_TYPE, "image/svg+xml")], include_str!("../../assets/board.svg")).into_response()
}

pub(crate) async fn not_found(State(board): State<Arc<Board>>) -> Response {
    board.problem(StatusCode::NOT_FOUND, "There is no such page", "It may have moved.")
}
