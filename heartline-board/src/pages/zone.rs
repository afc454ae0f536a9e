//! The setting of a person's time zone.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Form, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::frame::Frame;
use crate::state::{Board, answer};
use crate::zone::{COOKIE, Zone};

#[derive(Template)]
#[template(path = "zone.html")]
struct ZonePage {
    frame: Frame,
    /// The name of an unknown time zone.
    wrong: String,
}

#[derive(Deserialize)]
pub(crate) struct ZoneForm {
    zone: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts) -> Response {
    answer(&ZonePage { frame: board.frame(&head), wrong: String::new() })
}

/// Keeps the zone in a cookie for a year.
pub(crate) async fn set(State(board): State<Arc<Board>>, head: Parts, Form(form): Form<ZoneForm>) -> Response {
    let Some(zone) = Zone::named(&form.zone) else {
        let page = ZonePage { frame: board.frame(&head), wrong: form.zone };
        return (StatusCode::BAD_REQUEST, answer(&page)).into_response();
    };
    let path = board.home();
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Lax; Path={path}; Max-Age=31536000", zone.name());
    ([(header::SET_COOKIE, cookie)], Redirect::to(path)).into_response()
}
