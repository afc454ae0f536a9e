//! A schedule: its rule, its ledger and its last ticks, and the actions on it.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use heartline::{Error, Inspector, ScheduleInfo, ScheduleSource};
use serde::Deserialize;

use crate::frame::Frame;
use crate::schedules::overdue;
use crate::state::{Board, PageResult, answer, encoded};
use crate::ticks::{Strip, word};
use heartline::inspect::text::{bytes, exact, span};

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    name: String,
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage {
    frame: Frame,
    task: String,
    name: String,
    /// Why it cannot be read.
    fault: Option<String>,
    paused: Option<String>,
    /// How late its next tick is, if that is a problem.
    overdue: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// The last job, and its state.
    last: Option<(String, String)>,
    strip: Strip,
    /// The outcome of each tick, how many ticks that covers, and when the last of them was due.
    ticks: Vec<(String, String, String)>,
    acts: Vec<(&'static str, &'static str, bool)>,
}

/// The address of the page of a schedule.
pub(crate) fn url(board: &Board, task: &str, name: &str) -> String {
    board.url(&format!("/schedule?task={}&name={}", encoded(task), encoded(name)))
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    board.must_know(&asked.task).await?;
    let name = asked.name.trim();
    let Some(info) = board.or_failed(board.inspector.schedule(&asked.task, name).await)? else {
        let text = format!("There is no schedule {name} of the task {}. It may have been removed.", asked.task);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such schedule", &text));
    };
    let (frame, now) = (board.frame(&head), board.inspector.now().await);
    let paused = info.pause.as_ref().map(|pause| {
        let because = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
        format!("Paused by {} since {}{because}", pause.by, exact(pause.at, now))
    });
    let state = info.last_state.map_or_else(|| "removed since".to_owned(), |state| state.to_string());
    let ticks = info.recent.iter().map(|tick| (word(tick.outcome), tick.count.to_string(), exact(tick.due, now)));
    Ok(answer(&SchedulePage {
        acts: frame.offered(acts_on(&info)),
        frame,
        task: asked.task,
        paused,
        overdue: overdue(info.late),
        facts: if info.fault.is_none() { facts(&info, now) } else { Vec::new() },
        last: info.last_job.as_ref().map(|job| (job.to_string(), state)),
        strip: Strip::of(&info.recent, now),
        ticks: ticks.collect(),
        name: info.name,
        fault: info.fault,
    }))
}

/// What is known of a readable schedule, each fact with its name.
fn facts(info: &ScheduleInfo, now: SystemTime) -> Vec<(&'static str, String)> {
    let source = match info.source {
        ScheduleSource::Code => "in code",
        _ => "at run time",
    };
    let least = if info.missed_is_lower_bound { "at least " } else { "" };
    let ledger = format!(
        "{} fired, {} overlapped, {least}{} missed, {} paused; {} by hand",
        info.fired, info.overlapped, info.missed_ticks, info.paused_ticks, info.by_hand
    );
    let facts = [
        Some(("Rule", info.rule.clone())),
        Some(("Next", info.next.map_or_else(|| "none".to_owned(), |at| exact(at, now)))),
        info.last.map(|at| ("Last", exact(at, now))),
        info.last_late.map(|late| ("Late by", span(late))),
        info.pending.map(|at| ("Waits for the last job", exact(at, now))),
        Some(("Ticks", ledger)),
        Some(("Counted since", exact(info.since, now))),
        Some(("While its job is not done", info.overlap.as_str().to_owned())),
        Some(("Missed ticks", info.missed.clone())),
        Some(("Declared", format!("{source} by {}", info.by))),
        Some(("Input", bytes(info.input_bytes as u64))),
    ];
    facts.into_iter().flatten().collect()
}

/// The actions on a schedule: name, label, and whether it stops something.
fn acts_on(info: &ScheduleInfo) -> Vec<(&'static str, &'static str, bool)> {
    match (&info.fault, &info.pause) {
        (Some(_), _) => Vec::new(),
        (None, Some(_)) => vec![("schedule_resume", "Resume", false), ("schedule_run", "Run now", false)],
        (None, None) => vec![("schedule_pause", "Pause", true), ("schedule_run", "Run now", false)],
    }
}

/// Runs an action on a schedule, and returns the result as text.
pub(crate) async fn act(
    inspector: &Inspector,
    act: &str,
    task: &str,
    name: &str,
    reason: &str,
) -> Result<String, Error> {
    let done = match act {
        "schedule_run" => inspector.run_schedule(task, name).await?.map(|job| format!("The job {job} was dispatched.")),
        "schedule_pause" => inspector.pause_schedule(task, name, reason).await?.map(|is_new| match is_new {
            true => format!("{name} is paused: its ticks are counted, and they dispatch no jobs."),
            false => format!("{name} was already paused."),
        }),
        _ => inspector.resume_schedule(task, name).await?.map(|was_paused| match was_paused {
            true => format!("{name} is resumed."),
            false => format!("{name} was not paused."),
        }),
    };
    Ok(done.unwrap_or_else(|| format!("There is no schedule {name} of {task}. Nothing was done.")))
}
