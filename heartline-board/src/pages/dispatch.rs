//! The form of a new job: with an input of its own, or with that of a job to edit.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use heartline::inspect::text::bytes;
use heartline::{Error, Inspector, JobId, JobValues};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::job;
use crate::frame::Frame;
use crate::runs::Run;
use crate::state::{Board, PageResult, answer};
use crate::wanted::Wanted;

/// The most bytes of an input in the form: a form has at most 64 KiB, in which a byte may take three.
pub(crate) const INPUT: usize = 16 * 1024;

/// The job that is edited, if any.
#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    #[serde(default)]
    id: String,
}

#[derive(Template)]
#[template(path = "dispatch.html")]
struct DispatchPage {
    frame: Frame,
    task: String,
    /// The job that is edited; empty for none.
    id: String,
    payload: String,
    key: String,
    /// Of the job that the form dispatches, however often it is sent.
    new_id: String,
    /// What is wrong with the input; empty if nothing is.
    wrong: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    board.must_know(&asked.task).await?;
    let Asked { task, id } = asked;
    let (payload, key) = match id.as_str() {
        "" => (String::new(), String::new()),
        id => input_of(&board, &task, id).await?,
    };
    let (frame, new_id) = (board.frame(&head), JobId::generate().to_string());
    Ok(answer(&DispatchPage { frame, task, id, payload, key, new_id, wrong: String::new() }))
}

/// The input of a job as text, and its key.
async fn input_of(board: &Board, task: &str, id: &str) -> Result<(String, String), Response> {
    let refused = |text: &str| board.problem(StatusCode::FORBIDDEN, "The input cannot be edited", text);
    if !board.options.shows_payloads {
        return Err(refused("This board shows no payloads and results."));
    }
    // It fails if the input cannot be decoded, or the job is one of a workflow.
    let copy = board.or_failed(board.inspector.dispatch_copy(task, id, None).await)?;
    let found = board.or_failed(board.inspector.job(task, id, JobValues::Small).await)?;
    let (Some(_), Some(found)) = (copy, found) else {
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such job", "It may have been removed."));
    };
    if found.payload_bytes > INPUT {
        let size = bytes(found.payload_bytes as u64);
        return Err(refused(&format!("It has {size}. The most that this page accepts is {}.", bytes(INPUT as u64))));
    }
    let payload = found.payload.unwrap_or_default();
    if (board.options.redact)(task, payload.clone()) != payload {
        return Err(refused("Parts of it are hidden, and would be lost. Run a copy of the job instead."));
    }
    Ok((serde_json::to_string_pretty(&payload).unwrap_or_default(), found.key.unwrap_or_default()))
}

/// The form again, if its input is not JSON.
pub(crate) fn mistake(board: &Board, head: &Parts, wanted: &Wanted) -> Option<Response> {
    let wrong = (wanted.act == "dispatch").then(|| input(&wanted.payload).err()).flatten()?;
    Some(answer(&DispatchPage {
        frame: board.frame(head),
        task: wanted.jobs.task.clone(),
        id: wanted.id.clone(),
        payload: wanted.payload.clone(),
        key: wanted.key.clone(),
        new_id: wanted.new_id.clone(),
        wrong: format!("The input is not JSON: {wrong}. Nothing was dispatched."),
    }))
}

/// The input of a form. An empty one is that of a task without input.
fn input(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_str(if text.trim().is_empty() { "null" } else { text })
}

/// Dispatches a job, and returns the result as text.
pub(crate) async fn act(board: &Board, inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let (task, id) = (wanted.jobs.task.as_str(), wanted.id.as_str());
    let input = match wanted.act.as_str() {
        "dispatch" => match input(&wanted.payload) {
            Ok(input) => Some(input),
            Err(wrong) => return Ok(format!("The input is not JSON: {wrong}. Nothing was dispatched.")),
        },
        _ => None,
    };
    let mut dispatch = match (id, input) {
        ("", Some(input)) => inspector.dispatch_json(task, input)?,
        (id, input) => match inspector.dispatch_copy(task, id, input).await? {
            Some(copy) => copy,
            None => return Ok("There is no such job. Nothing was dispatched.".to_owned()),
        },
    };
    if !wanted.key.trim().is_empty() {
        dispatch = dispatch.key(wanted.key.trim());
    }
    if !wanted.new_id.is_empty() {
        dispatch = dispatch.id(&wanted.new_id);
    }
    let dispatched = dispatch.await?;
    run.leads_to(job::url(board, task, dispatched.id().as_str()));
    let already = if dispatched.existed() == Some(true) { " already" } else { "" };
    Ok(format!("The job {} was{already} dispatched.", dispatched.id()))
}
