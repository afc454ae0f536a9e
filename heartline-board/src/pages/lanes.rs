//! The lanes of a task: the keys whose jobs wait, and the keys with settings of their own.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::inspect::describe::{lane_limits, lane_state};
use heartline::inspect::text::many;
use heartline::{Lane, LaneState, LimitReached};
use serde::Deserialize;

use crate::frame::Frame;
use crate::state::{Board, PageResult, answer};

/// The most keys in a table.
const LISTED: usize = 200;

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    /// Empty for all states.
    #[serde(default)]
    state: String,
}

#[derive(Template)]
#[template(path = "lanes.html")]
struct LanesPage {
    frame: Frame,
    task: String,
    /// The states with the numbers of their keys, in words.
    states: [(LaneState, String); 3],
    /// The state that is shown. Empty for all.
    shown: String,
    rows: Vec<Row>,
    /// How many keys are not on the page.
    more: u64,
    /// The keys with settings.
    own: Vec<Row>,
}

/// A key.
struct Row {
    /// Empty for the jobs without one.
    key: String,
    state: String,
    is_ready: bool,
    waiting: u64,
    held: u64,
    limits: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    board.must_know(&asked.task).await?;
    let state: Option<LaneState> = asked.state.parse().ok();
    let read = async {
        let lanes = board.inspector.lanes(&asked.task)?;
        Ok::<_, heartline::Error>((lanes.list(state, LISTED).await?, lanes.with_settings(LISTED).await?))
    };
    let (report, own) = board.or_failed(read.await)?;
    let counts =
        [(LaneState::Ready, report.ready), (LaneState::Resting, report.resting), (LaneState::Full, report.full)];
    let all: u64 = counts.iter().filter(|(of, _)| state.is_none_or(|state| state == *of)).map(|(_, keys)| keys).sum();
    let states = counts.map(|(of, keys)| match of {
        LaneState::Full => (of, full_or_paused(keys, &own)),
        _ => (of, format!("{keys} {of}")),
    });
    Ok(answer(&LanesPage {
        frame: board.frame(&head),
        task: asked.task,
        states,
        shown: state.map_or_else(String::new, |state| state.to_string()),
        more: all.saturating_sub(report.lanes.len() as u64),
        rows: rows(&report.lanes, report.as_of),
        own: rows(&own, report.as_of),
    }))
}

/// The count of full keys, apart from that of paused ones, which Redis counts together.
fn full_or_paused(keys: u64, own: &[Lane]) -> String {
    let is_paused = |lane: &&Lane| matches!(lane.limit, Some(LimitReached::KeyPaused { .. }));
    let paused = own.iter().filter(|lane| lane.state == LaneState::Full).filter(is_paused).count() as u64;
    match keys.saturating_sub(paused) {
        // The list of paused keys may be incomplete.
        _ if own.len() >= LISTED => format!("{keys} full or paused"),
        full if paused == 0 => format!("{full} full"),
        0 => format!("{paused} paused"),
        full => format!("{full} full, {paused} paused"),
    }
}

fn rows(lanes: &[Lane], now: SystemTime) -> Vec<Row> {
    let row = |lane: &Lane| Row {
        key: lane.key.clone().unwrap_or_default(),
        state: lane_state(lane, now),
        is_ready: lane.limit.is_none(),
        waiting: lane.waiting,
        held: lane.held,
        limits: lane_limits(lane),
    };
    lanes.iter().map(row).collect()
}

impl LanesPage {
    /// How many keys the page does not show, for people.
    fn rest(&self) -> String {
        many(self.more, "more key")
    }
}
