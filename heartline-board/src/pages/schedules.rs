//! The schedules of all tasks, or of one: when each runs next, when it ran last, and how late.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::{ScheduleCounts, ScheduleInfo};
use serde::Deserialize;

use crate::badge::grouped;
use crate::frame::Frame;
use crate::pages::stalls::unread;
use crate::schedules::{Schedules, overdue};
use crate::state::{Board, PageResult, answer};
use crate::ticks::Strip;
use heartline::inspect::text::{relative, span};

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    task: String,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    /// Empty for all tasks.
    task: String,
    schedules: Arc<Schedules>,
    rows: Vec<Row>,
    /// The tasks that cannot be read now.
    unread: String,
    /// How many schedules are not on the page.
    more: u64,
}

impl SchedulesPage {
    fn overdue(&self, totals: &ScheduleCounts) -> String {
        overdue(totals.late).unwrap_or_default()
    }
}

/// A schedule.
struct Row {
    task: String,
    name: String,
    rule: String,
    is_readable: bool,
    is_paused: bool,
    next: String,
    last: String,
    is_overdue: bool,
    /// How long its next tick is overdue, or how late the last one fired.
    late: String,
    strip: Strip,
    /// How many ticks were fired, overlapped, missed and paused, in words.
    counts: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let (names, away): (Vec<String>, String) = if asked.task.is_empty() {
        let (seen, _) = board.or_failed(board.look().await)?;
        let readable = seen.fleet.tasks.iter().filter(|task| task.fault.is_none());
        (readable.map(|task| task.task.clone()).collect(), unread(&seen.fleet))
    } else {
        board.must_know(&asked.task).await?;
        (vec![asked.task.clone()], String::new())
    };
    let look = async { Ok(Schedules::look(&board.inspector, &names).await) };
    let schedules = board.or_failed(board.schedules.of((&asked.task, ""), |_| true, look).await)?;
    let now = board.inspector.now().await;
    let away = Some(away.as_str()).filter(|away| !away.is_empty());
    let unread = away.into_iter().chain(schedules.faults.iter().map(String::as_str)).collect::<Vec<_>>().join(", ");
    Ok(answer(&SchedulesPage {
        frame: board.frame(&head),
        task: asked.task,
        rows: schedules.rows.iter().map(|(task, info)| row(task, info, now)).collect(),
        unread,
        more: schedules.more(),
        schedules,
    }))
}

fn row(task: &str, info: &ScheduleInfo, now: SystemTime) -> Row {
    let when = |at: Option<SystemTime>| at.map_or_else(|| "–".to_owned(), |at| relative(at, now));
    let overdue = overdue(info.late);
    Row {
        task: task.to_owned(),
        name: info.name.clone(),
        rule: info.fault.clone().unwrap_or_else(|| info.rule.clone()),
        is_readable: info.fault.is_none(),
        is_paused: info.pause.is_some(),
        next: when(info.next),
        last: when(info.last),
        is_overdue: overdue.is_some(),
        late: overdue.or(info.last_late.map(span)).unwrap_or_else(|| "–".to_owned()),
        strip: Strip::of(&info.recent, now),
        counts: counts(info),
    }
}

/// The number of ticks by outcome; only those that occurred, and always those that fired.
fn counts(info: &ScheduleInfo) -> String {
    let least = if info.missed_is_lower_bound { "at least " } else { "" };
    let others =
        [("", info.overlapped, "overlapped"), (least, info.missed_ticks, "missed"), ("", info.paused_ticks, "paused")];
    let others = others.into_iter().filter(|(_, ticks, _)| *ticks > 0);
    let others = others.map(|(least, ticks, outcome)| format!(", {least}{} {outcome}", grouped(&ticks)));
    format!("{} fired{}", grouped(&info.fired), others.collect::<String>())
}
