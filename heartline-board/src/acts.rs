//! What a person does: each act is told with who did it, and what cannot be undone is asked about first.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use heartline::{ActReport, Error, Inspector, JobSelection, SilentSelection};
use serde::Deserialize;

use crate::pages::jobs::Asked;
use crate::pages::{Board, Frame, answer, encoded};
use crate::text::shown;

/// How many refusals a page tells.
const TOLD: usize = 50;

/// What was asked for. Without an id it is about all jobs that fit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    act: String,
    id: String,
    reason: String,
    confirmed: String,
    task: String,
    state: String,
    code: String,
    text: String,
    older: String,
}

impl Wanted {
    fn jobs(&self) -> Asked {
        Asked {
            task: self.task.clone(),
            state: self.state.clone(),
            code: self.code.clone(),
            text: self.text.clone(),
            older: self.older.clone(),
            ..Asked::default()
        }
    }

    /// Where the person came from.
    fn back(&self, board: &Board) -> String {
        let task = encoded(&self.task);
        match self.act.as_str() {
            "pause" | "resume" => board.url(&format!("/task?task={task}")),
            _ if self.id.is_empty() => self.jobs().url(board),
            _ => board.url(&format!("/job?task={task}&id={}", encoded(&self.id))),
        }
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let Wanted { act, id, reason, task, state, code, text, older, .. } = self.clone();
        vec![
            ("act", act),
            ("id", id),
            ("reason", reason),
            ("task", task),
            ("state", state),
            ("code", code),
            ("text", text),
            ("older", older),
        ]
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    what: String,
    text: String,
    fields: Vec<(&'static str, String)>,
    back: String,
}

#[derive(Template)]
#[template(path = "done.html")]
struct DonePage {
    frame: Frame,
    what: String,
    lines: Vec<String>,
    back: String,
}

pub(crate) async fn act(State(board): State<Arc<Board>>, head: HeaderMap, Form(wanted): Form<Wanted>) -> Response {
    if board.options.is_read_only {
        return board.problem(StatusCode::FORBIDDEN, "This board is read only", "Nothing was done.");
    }
    let inspector = board.inspector.clone().by((board.options.by)(&head));
    let done = match wanted.act.as_str() {
        "pause" | "resume" => of_task(&inspector, &wanted).await,
        "retry" | "cancel" | "remove" | "run_now" | "recover_running" | "fail_running" => {
            match confirmed(&board, &wanted).await {
                Ok(None) => of_jobs(&inspector, &wanted).await,
                Ok(Some(page)) => return page,
                Err(e) => Err(e),
            }
        }
        other => {
            let text = format!("{} is nothing that a board does.", shown(other));
            return board.problem(StatusCode::BAD_REQUEST, "That cannot be done", &text);
        }
    };
    match done {
        Ok((what, lines)) => answer(&DonePage { frame: board.frame(), what, lines, back: wanted.back(&board) }),
        Err(e) => board.failed(&e),
    }
}

/// A page that asks, for what cannot be undone and for what is about many jobs.
async fn confirmed(board: &Board, wanted: &Wanted) -> Result<Option<Response>, Error> {
    let is_about_many = wanted.id.is_empty();
    let is_harmless = matches!(wanted.act.as_str(), "retry" | "run_now");
    if !wanted.confirmed.is_empty() || is_harmless && !is_about_many {
        return Ok(None);
    }
    let verb = match wanted.act.as_str() {
        "retry" => "Retry",
        "run_now" => "Run now",
        "cancel" => "Cancel",
        "remove" => "Remove",
        "recover_running" => "Run again",
        _ => "Let fail",
    };
    let text = if is_about_many {
        let filter = match wanted.jobs().filter() {
            Ok(filter) => filter,
            Err(wrong) => return Ok(Some(board.problem(StatusCode::BAD_REQUEST, "That cannot be asked for", &wrong))),
        };
        let count = board.inspector.count(&wanted.task, &filter).await?;
        let least = if count.is_exact { "" } else { "at least " };
        let state = if wanted.state.is_empty() { "failed" } else { &wanted.state };
        let mut text = format!("{least}{} {state} jobs of {}", count.jobs, wanted.task);
        for (name, value) in [("the code", &wanted.code), ("the text", &wanted.text), ("an age over", &wanted.older)] {
            if !value.is_empty() {
                text.push_str(&format!(", with {name} {value}"));
            }
        }
        format!("{text}; and those that come to fit until then.")
    } else {
        format!("{} of {}.", wanted.id, wanted.task)
    };
    let back = wanted.back(board);
    let page = ConfirmPage { frame: board.frame(), what: format!("{verb}?"), text, fields: wanted.fields(), back };
    Ok(Some(answer(&page)))
}

async fn of_task(inspector: &Inspector, wanted: &Wanted) -> Result<(String, Vec<String>), Error> {
    let task = &wanted.task;
    if wanted.act == "pause" {
        inspector.pause(task, &wanted.reason).await?;
        return Ok((format!("{task} is paused"), vec!["No job of it begins; what runs goes on.".to_owned()]));
    }
    inspector.resume(task).await?;
    Ok((format!("{task} goes on"), Vec::new()))
}

async fn of_jobs(inspector: &Inspector, wanted: &Wanted) -> Result<(String, Vec<String>), Error> {
    let task = wanted.task.as_str();
    let jobs: JobSelection = if wanted.id.is_empty() {
        // What is wrong with it was told before it was confirmed; nothing is done by half of a filter.
        let Ok(filter) = wanted.jobs().filter() else { return Ok(("Nothing was done".to_owned(), Vec::new())) };
        filter.into()
    } else {
        wanted.id.as_str().into()
    };
    let silent = || SilentSelection::ids([&wanted.id]);
    let (done, report) = match wanted.act.as_str() {
        "retry" => ("run again", inspector.retry(task, jobs).await?),
        "run_now" => ("run now", inspector.run_now(task, jobs).await?),
        "cancel" => ("cancelled", inspector.cancel(task, jobs, &wanted.reason).await?),
        "remove" => ("removed", inspector.remove(task, jobs).await?),
        "recover_running" => ("run again", inspector.recover_running(task, silent()).await?),
        _ => ("failed", inspector.fail_running(task, silent()).await?),
    };
    Ok((format!("{} {done}, {} refused", report.done, report.refused), lines(&report)))
}

fn lines(report: &ActReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.requested > 0 {
        lines.push(format!("{} were asked of their workers", report.requested));
    }
    lines.extend(report.refusals.iter().take(TOLD).map(|refused| format!("{}: {}", shown(&refused.id), refused.why)));
    let more = (report.refused as usize).saturating_sub(TOLD);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}
