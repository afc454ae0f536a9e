//! A job: its data, its events, and the actions on it.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use heartline::inspect::describe::{facts, instance_of};
use heartline::inspect::text::bytes;
use heartline::{Error, JobId, JobReport, JobState, JobValues};
use serde::Deserialize;

use super::jobs::acts_on;
use crate::badge::{self, Badge};
use crate::event_words::EventWords;
use crate::frame::Frame;
use crate::history::{History, place_of};
use crate::job_runs::JobRuns;
use crate::state::{Board, PageResult, answer, encoded};
use crate::tree::tree;
use crate::trouble::Trouble;

/// The most bytes of a value that is shown as a tree.
const TREE: usize = 16 * 1024;

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    id: String,
    #[serde(default)]
    values: String,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    task: String,
    id: String,
    state: JobState,
    /// Its key, in a task whose jobs have keys.
    key: Option<String>,
    now: SystemTime,
    facts: Vec<(&'static str, String)>,
    badge: Badge,
    /// Why its handler was asked to stop, while it runs.
    asked_to_stop: Option<String>,
    /// The instance of which it is a node: its workflow, its id, and the address of its page.
    instance: Option<(String, String, String)>,
    troubles: Vec<Trouble>,
    holder: String,
    acts: Vec<(&'static str, &'static str, bool)>,
    /// The id of a copy, if it may be copied: a form that is sent twice makes one copy.
    new_id: Option<String>,
    /// The page that dispatches it with another input.
    edited_at: Option<String>,
    history: Arc<History>,
    runs: JobRuns,
    values_at: Option<String>,
    values: Vec<(&'static str, Shown)>,
}

/// A payload, result or checkpoint on the page.
enum Shown {
    /// Its text, and its tree if it has parts and is small.
    Whole(String, Option<String>),
    /// Its size, and the address to download it.
    TooLarge(String, String),
}

/// The address of the page of a job.
pub(crate) fn url(board: &Board, task: &str, id: &str) -> String {
    board.url(&format!("/job?task={}&id={}", encoded(task), encoded(id)))
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let shows_values = board.options.shows_payloads && !asked.values.is_empty();
    let looked = look(&board, &asked, if shows_values { JobValues::Small } else { JobValues::None });
    let Some((job, history)) = board.or_failed(looked.await)? else {
        let text = format!("There is no job {} of {}. It may have been removed.", asked.id, asked.task);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such job", &text));
    };
    let diagnoses = board.or_failed(board.inspector.diagnose_job(&job).await)?;
    let now = board.inspector.now().await;
    let instance = instance_of(&job.id).map(|(workflow, instance)| {
        let url = board.url(&format!("/instance?workflow={}&id={}", encoded(&workflow), encoded(&instance)));
        (workflow, instance, url)
    });
    let asked_to_stop = job.cancel_requested.clone().filter(|_| job.state == JobState::Running);
    let mut acts = acts_on(job.state);
    // The job of a workflow node belongs to its instance. One that was asked to stop is not asked again.
    let is_offered = |act: &str| match act {
        "retry" | "remove" => instance.is_none(),
        "cancel" => asked_to_stop.is_none(),
        _ => true,
    };
    acts.retain(|(act, ..)| is_offered(act));
    // A healthy job is silent for up to a third of each interval: then nothing is wrong with it.
    let is_silent = job.is_silent && !diagnoses.is_empty();
    if !diagnoses.is_empty() {
        match job.state {
            JobState::Claimed => acts.push(("requeue_claimed", "Requeue", true)),
            JobState::Running | JobState::Finalizing => {
                acts.push(("recover_running", "Run again", true));
                acts.push(("fail_running", "Fail", true));
            }
            _ => {}
        }
    }
    let frame = board.frame(&head);
    let mut acts = frame.offered(acts);
    let is_copied = frame.may("dispatch") && instance.is_none();
    if is_copied {
        acts.push(("dispatch_copy", "Run a copy", false));
    }
    let edit = format!("/dispatch?task={}&id={}", encoded(&asked.task), encoded(&asked.id));
    let values = if shows_values { values(&board, &asked, &job) } else { Vec::new() };
    let can_show = board.options.shows_payloads && !shows_values;
    let url = format!("/job?task={}&id={}&values=yes", encoded(&asked.task), encoded(&asked.id));
    Ok(answer(&JobPage {
        facts: facts(&job, now),
        badge: badge::of_job(job.state),
        asked_to_stop,
        instance,
        troubles: Trouble::all(&diagnoses, &frame),
        holder: job.worker.as_ref().map_or(String::new(), ToString::to_string),
        acts,
        new_id: is_copied.then(|| JobId::generate().to_string()),
        edited_at: (is_copied && board.options.shows_payloads).then(|| board.url(&edit)),
        frame,
        runs: JobRuns::of(&history.events, is_silent, now),
        history,
        now,
        values_at: can_show.then(|| board.url(&url)),
        values,
        task: asked.task,
        id: asked.id,
        state: job.state,
        key: job.key,
    }))
}

/// The payload, result and checkpoint of a job, if it has them.
fn values(board: &Board, asked: &Asked, job: &JobReport) -> Vec<(&'static str, Shown)> {
    let all = [
        ("Payload", &job.payload, job.payload_bytes),
        ("Result", &job.result, job.result_bytes),
        ("Checkpoint", &job.checkpoint, 0),
    ];
    let shown = all.into_iter().filter_map(|(name, value, size)| match value {
        Some(value) => {
            let value = (board.options.redact)(&asked.task, value.clone());
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            let has_tree = (value.is_object() || value.is_array()) && text.len() <= TREE;
            Some((name, Shown::Whole(text, has_tree.then(|| tree(&value)))))
        }
        None if size > 0 => {
            let (task, id, which) = (encoded(&asked.task), encoded(&asked.id), name.to_ascii_lowercase());
            let url = board.url(&format!("/value?task={task}&id={id}&which={which}"));
            Some((name, Shown::TooLarge(bytes(size as u64), url)))
        }
        None => None,
    });
    shown.collect()
}

/// The value to download.
#[derive(Deserialize)]
pub(crate) struct AskedValue {
    task: String,
    id: String,
    which: String,
}

/// Serves a payload or result as a file, since it may be too large for a page.
pub(crate) async fn download(State(board): State<Arc<Board>>, Query(asked): Query<AskedValue>) -> PageResult {
    if !board.options.shows_payloads {
        let text = "This board shows no payloads and results.";
        return Err(board.problem(StatusCode::FORBIDDEN, "Payloads are hidden", text));
    }
    let job = board.or_failed(board.inspector.job(&asked.task, &asked.id, JobValues::All).await)?;
    let value = job.and_then(|job| if asked.which == "result" { job.result } else { job.payload });
    let Some(value) = value else {
        let text = format!("There is no {} of the job {} of {}.", asked.which, asked.id, asked.task);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such value", &text));
    };
    let value = (board.options.redact)(&asked.task, value);
    let file = "attachment; filename=\"value.json\"";
    let head = [(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, file)];
    Ok((head, value.to_string()).into_response())
}

async fn look(
    board: &Board,
    asked: &Asked,
    values: JobValues,
) -> Result<Option<(JobReport, Arc<History>)>, Arc<Error>> {
    let Some(job) = board.inspector.job(&asked.task, &asked.id, values).await? else { return Ok(None) };
    let place = place_of(&job);
    let read = async {
        let events = board.inspector.job_events(&asked.task, &asked.id).await?;
        let stalls = board.inspector.stall_history(&asked.task, &asked.id).await?;
        Ok(History { place: place.clone(), events, stalls })
    };
    let history = board.histories.of((&asked.task, &asked.id), |known| known.place == place, read).await?;
    Ok(Some((job, history)))
}
