//! Every task, and what is wrong.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use heartline::{JobState, TaskReport};

use super::{Board, Frame, answer};
use crate::text::{many, span};
use crate::told::STATES;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    states: [JobState; 8],
    troubles: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    task: String,
    is_paused: bool,
    counts: Vec<(JobState, u64)>,
    oldest: String,
    rate_in: String,
    rate_out: String,
    workers: u64,
    slots: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>) -> Response {
    let (seen, before) = match board.look().await {
        Ok(seen) => seen,
        Err(e) => return board.failed(&e),
    };
    let row = |task: &TaskReport| {
        let earlier = before.as_ref().and_then(|seen| seen.tasks.iter().find(|earlier| earlier.task == task.task));
        let rates = earlier.and_then(|earlier| task.rates_since(earlier));
        let rate = |of: fn(&heartline::TaskRates) -> f64| {
            rates.as_ref().map_or("–".to_owned(), |rates| format!("{:.0}", of(rates)))
        };
        Row {
            task: task.task.clone(),
            is_paused: task.paused.is_some(),
            counts: STATES.map(|state| (state, task.counts.of_state(state))).to_vec(),
            oldest: task.next_waiting_age.map_or("–".to_owned(), span),
            rate_in: rate(|rates| rates.dispatched),
            rate_out: rate(|rates| rates.ended),
            workers: task.live_workers,
            slots: format!("{}/{}", task.counts.claimed + task.counts.running, task.slots),
        }
    };
    let troubles = seen.tasks.iter().filter_map(trouble).collect();
    let rows = seen.tasks.iter().map(row).collect();
    answer(&OverviewPage { frame: board.frame(), states: STATES, troubles, rows })
}

/// What is wrong with a task, if anything.
fn trouble(task: &TaskReport) -> Option<String> {
    if let Some(fault) = &task.fault {
        return Some(format!("{} cannot be read: {fault}", task.task));
    }
    let held = task.counts.claimed + task.counts.running + task.counts.finalizing;
    let waiting = task.counts.waiting;
    let is_overdue = task.next_due_at.is_some_and(|at| at < task.as_of);
    let waiting = waiting + u64::from(is_overdue);
    (waiting + held > 0 && task.live_workers == 0).then(|| {
        format!("{}: {} waiting and {held} held, and no live worker works it", task.task, many(waiting, "job"))
    })
}
