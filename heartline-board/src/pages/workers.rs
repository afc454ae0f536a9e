//! The workers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::{WorkerReport, WorkerState};
use serde::Deserialize;

use crate::badge::{self, Badge};
use crate::frame::Frame;
use crate::state::{Board, PageResult, Seen, answer};
use heartline::inspect::describe::{Beat, beats};
use heartline::inspect::text::placed;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    all: String,
    /// How many workers earlier pages listed.
    from: usize,
}

/// The most workers on a page, and the most heartbeats.
const LISTED: usize = 300;

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    seen: Seen,
    now: SystemTime,
    rows: Vec<WorkerReport>,
    /// How many workers are in each state that is not gone.
    totals: Vec<Badge>,
    beats: Vec<Beat>,
    /// Whether a worker of the page left jobs that the person may recover.
    offers_recovery: bool,
    gone: usize,
    /// Why the list is incomplete.
    away: Option<String>,
    /// How many more there are, and the address of the next page.
    more: Option<(usize, String)>,
}

impl WorkersPage {
    fn badge(&self, worker: &WorkerReport) -> Badge {
        badge::of_worker(worker, worker.leaves_jobs(&self.seen.fleet.holders))
    }

    /// Whether it is not live, and left jobs.
    fn is_lost(&self, worker: &WorkerReport) -> bool {
        !worker.state.is_live() && worker.leaves_jobs(&self.seen.fleet.holders)
    }

    fn held(&self, worker: &WorkerReport) -> String {
        // Of a dead worker, show only numbers that were read from Redis.
        let is_known = |task: &str| self.seen.fleet.holders.iter().any(|report| report.task == task);
        let held = worker.tasks.iter().map(|its| {
            let is_told = worker.state.is_live() || (its.held > 0 && is_known(&its.task));
            if is_told { format!("{} {}/{}", its.task, its.held, its.slots) } else { its.task.clone() }
        });
        held.collect::<Vec<_>>().join(", ")
    }
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let (seen, _) = board.or_failed(board.look().await)?;
    let leaves = |worker: &&WorkerReport| worker.leaves_jobs(&seen.fleet.holders);
    let is_shown =
        |worker: &&WorkerReport| !asked.all.is_empty() || worker.state != WorkerState::Gone || leaves(worker);
    let mut shown: Vec<&WorkerReport> = seen.fleet.workers.iter().filter(is_shown).collect();
    let gone = seen.fleet.workers.len() - shown.len();
    shown.sort_by_key(|worker| !leaves(worker));
    let more = shown.len().saturating_sub(asked.from.saturating_add(LISTED));
    let page: Vec<&WorkerReport> = shown.into_iter().skip(asked.from).take(LISTED).collect();
    let now = board.inspector.now().await;
    let count = |state| seen.fleet.workers.iter().filter(|worker| worker.state == state).count();
    let totals = [
        (WorkerState::Silent, "red", "crit"),
        (WorkerState::Stopping, "amber", "fin"),
        (WorkerState::Quiet, "amber", "pause"),
        (WorkerState::Live, "green", "check"),
    ];
    let totals = totals.into_iter().filter(|(state, ..)| count(*state) > 0);
    let totals = totals.map(|(state, tone, icon)| Badge::new(tone, icon, format!("{} {state}", count(state))));
    let offers_recovery =
        board.may(&head, "recover_worker") && page.iter().any(|worker| !worker.state.is_live() && leaves(worker));
    let beats = beats(page.iter().copied(), now);
    Ok(answer(&WorkersPage {
        frame: board.frame(&head),
        now,
        totals: totals.collect(),
        rows: page.into_iter().cloned().collect(),
        beats: beats.into_iter().take(LISTED).collect(),
        offers_recovery,
        gone,
        away: (seen.fleet.away.diagnoses().pop())
            .filter(|_| seen.fleet.away.workers.is_some())
            .map(|diagnosis| format!("{diagnosis}; {}.", placed(&diagnosis.hint(), &board.command_options()))),
        more: (more > 0).then(|| {
            let all = if asked.all.is_empty() { "" } else { "&all=yes" };
            (more, board.url(&format!("/workers?from={}{all}", asked.from.saturating_add(LISTED))))
        }),
        seen,
    }))
}
