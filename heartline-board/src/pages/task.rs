//! A task.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use heartline::{Error, JobFilter, JobState, SeriesSpan, TaskReport};
use serde::Deserialize;

use crate::badge::{Badge, Meter, grouped};
use crate::frame::Frame;
use crate::pages::jobs::{Tab, tabs};
use crate::pages::overview::badge_of;
use crate::plot::{self, Plot};
use crate::state::{Board, PageResult, answer};
use crate::trouble::{Advice, Trouble};
use heartline::inspect::describe::{CodeCount, codes, heard, lane_counts, live_workers, task_limit};
use heartline::inspect::text::{exact, span};

/// The most failed jobs that are read for their codes.
const LOOKED: usize = 200;

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    /// How far back the plots reach.
    #[serde(default)]
    span: PlotSpan,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlotSpan {
    #[default]
    Hour,
    Day,
    Month,
}

impl PlotSpan {
    /// The spans, by their names in the address and on the page.
    const ALL: [(PlotSpan, &'static str, &'static str); 3] =
        [(PlotSpan::Hour, "hour", "1 hour"), (PlotSpan::Day, "day", "24 hours"), (PlotSpan::Month, "month", "30 days")];

    async fn plots(self, board: &Board, task: &str) -> Vec<Plot> {
        let (name, span) = match self {
            PlotSpan::Hour => ("hour", SeriesSpan::Hour),
            PlotSpan::Day => ("day", SeriesSpan::Day),
            PlotSpan::Month => ("month", SeriesSpan::Month),
        };
        let read = board.series.of((task, name), |_| true, board.inspector.series(task, span)).await;
        read.map_or_else(|_| Vec::new(), |series| plot::plots(&series).into())
    }
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: Frame,
    task: TaskReport,
    badge: Badge,
    tabs: Vec<Tab>,
    paused: Option<String>,
    troubles: Vec<Trouble>,
    facts: Vec<(String, String)>,
    outlook: Vec<Advice>,
    /// The plots of a span; empty if they cannot be read.
    plots: Vec<Plot>,
    span: PlotSpan,
    codes: Arc<Vec<CodeCount>>,
    /// How many failed jobs were read for their codes.
    looked: u64,
    /// Whether jobs are held and no live worker watches them.
    is_unwatched: bool,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let looked = async {
        let task = board.inspector.task(&asked.task).await?;
        let outlook = board.inspector.recovery_status(&asked.task).await?;
        let diagnoses = board.inspector.diagnose_task(&task).await?;
        Ok((task, outlook, diagnoses))
    };
    let (task, outlook, mut diagnoses) = match looked.await {
        Ok(looked) => looked,
        Err(e) => {
            let foreign = board.inspector.foreign_keys(&asked.task).await.unwrap_or_default();
            if foreign.is_empty() {
                return Err(board.failed(&e));
            }
            let named: Vec<String> = foreign.iter().map(ToString::to_string).collect();
            let text = format!("{}: rename or delete it, then audit the task.", named.join(", "));
            return Err(board.problem(StatusCode::INTERNAL_SERVER_ERROR, "A key has the wrong type", &text));
        }
    };
    let is_known = task.dispatched > 0 || task.options.declared_by.is_some() || task.live_workers > 0;
    if !is_known && task.counts.pending_total() == 0 {
        let text = format!("There is no task {}. Check its name.", asked.task);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such task", &text));
    }
    let codes = board.or_failed(failed_codes(&board, &task).await)?;
    let now = task.as_of;
    let paused = task.paused.as_ref().map(|pause| {
        let because = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
        format!("Paused by {} since {}{because}", pause.by, exact(pause.at, now))
    });
    let badge = badge_of(diagnoses.first());
    // The page has a separate line for the pause.
    diagnoses.retain(|diagnosis| paused.is_none() || !diagnosis.is_pause());
    let total = format!("{} dispatched, {} ended, {} of them failed", task.dispatched, task.ended, task.failed);
    let facts = [
        Some(("workers", format!("{} live, {} slots", live_workers(&task), task.slots))),
        Some(("in total", total)),
        task.next_waiting_age.map(|age| ("next has waited", span(age))),
        task_limit(&task).map(|limit| ("waits because", limit)),
        task.lanes.map(|lanes| ("keys", lane_counts(lanes, now))),
        task.next_due_at.map(|at| ("next is due", exact(at, now))),
    ];
    let mut facts: Vec<_> = facts.into_iter().flatten().map(|(name, fact)| (name.to_owned(), fact)).collect();
    for part in &task.parts {
        let of = if task.parts.len() > 1 { format!(" of partition {}", part.part) } else { String::new() };
        let interval = part.interval.map_or("unknown".to_owned(), span);
        facts.push((format!("stall interval{of}"), interval));
        facts.push((format!("held jobs{of}"), heard(part, now)));
    }
    let frame = board.frame(&head);
    let plots = asked.span.plots(&board, &asked.task).await;
    Ok(answer(&TaskPage {
        plots,
        span: asked.span,
        badge,
        tabs: tabs(&board, &task, None),
        troubles: Trouble::all(&diagnoses, &frame),
        outlook: outlook.reasons.iter().map(|reason| Advice::of(reason, &frame)).collect(),
        looked: codes.iter().map(|count| count.jobs).sum(),
        frame,
        is_unwatched: task.live_workers == 0 && task.knows_workers && task.counts.held_total() > 0,
        task,
        paused,
        facts,
        codes,
    }))
}

/// The codes of the last failed jobs of a task; open pages share them.
pub(crate) async fn failed_codes(board: &Board, task: &TaskReport) -> Result<Arc<Vec<CodeCount>>, Arc<Error>> {
    if task.counts.failed == 0 {
        return Ok(Arc::default());
    }
    let failed = async {
        let page = board.inspector.jobs(&task.task, &JobFilter::new(JobState::Failed), None, LOOKED).await?;
        let mut counts = codes(&page.jobs);
        if page.next.is_some() {
            // Earlier jobs may have these codes.
            counts.iter_mut().for_each(|count| count.first_at = None);
        }
        Ok(counts)
    };
    board.codes.of((&task.task, ""), |_| true, failed).await
}
