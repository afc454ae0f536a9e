//! One job: what is known of it, what has happened to it, what may be done.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use heartline::{Error, Event, JobReport, JobState, JobValues, StallReport};
use serde::Deserialize;
use serde_json::Value;

use super::jobs::acts_on;
use super::{Board, Frame, answer, encoded};
use crate::text::{brief, exact, shown, span};

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
    facts: Vec<(&'static str, String)>,
    acts: Vec<(&'static str, &'static str, bool)>,
    stalls: Vec<String>,
    events: Vec<(String, String, String)>,
    values_at: Option<String>,
    values: Vec<(&'static str, String)>,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, Query(asked): Query<Asked>) -> Response {
    let shows_values = board.options.shows_payloads && !asked.values.is_empty();
    let looked = look(&board, &asked, if shows_values { JobValues::Small } else { JobValues::None });
    let (job, events, stalls) = match looked.await {
        Ok(Some(looked)) => looked,
        Ok(None) => {
            let text = format!(
                "Nothing is known of {} in {}: it may have been removed.",
                shown(&asked.id),
                shown(&asked.task)
            );
            return board.problem(StatusCode::NOT_FOUND, "There is no such job", &text);
        }
        Err(e) => return board.failed(&e),
    };
    let now = SystemTime::now();
    let mut acts = acts_on(job.state);
    if job.state == JobState::Running && job.is_silent {
        acts.push(("recover_running", "Run again", true));
        acts.push(("fail_running", "Let fail", true));
    }
    let mut values = Vec::new();
    for (name, value) in [("Payload", &job.payload), ("Result", &job.result), ("Checkpoint", &job.checkpoint)] {
        if let Some(value) = value {
            values.push((name, serde_json::to_string_pretty(value).unwrap_or_default()));
        }
    }
    let can_show = board.options.shows_payloads && !shows_values;
    let url = format!("/job?task={}&id={}&values=yes", encoded(&asked.task), encoded(&asked.id));
    answer(&JobPage {
        frame: board.frame(),
        facts: facts(&job, now),
        acts,
        stalls: stalls.iter().map(|stall| format!("{}: {stall}", exact(stall.stall.at, now))).collect(),
        events: events.iter().map(|event| told(event, now)).collect(),
        values_at: can_show.then(|| board.url(&url)),
        values,
        task: asked.task,
        id: asked.id,
    })
}

type Looked = (JobReport, Vec<Event>, Vec<StallReport>);

async fn look(board: &Board, asked: &Asked, values: JobValues) -> Result<Option<Looked>, Error> {
    let Some(job) = board.inspector.job(&asked.task, &asked.id, values).await? else { return Ok(None) };
    let events = board.inspector.job_events(&asked.task, &asked.id).await?;
    let stalls = board.inspector.explain(&asked.task, &asked.id).await?;
    Ok(Some((job, events, stalls)))
}

fn facts(job: &JobReport, now: SystemTime) -> Vec<(&'static str, String)> {
    let time = |at: Option<SystemTime>| at.map(|at| exact(at, now));
    let of = |most: Option<u32>| most.map_or_else(String::new, |most| format!(" of {most}"));
    let silent = if job.is_silent { ", silent since the last snapshot" } else { "" };
    let recovery = job.recovery.as_ref().map(|recovery| {
        let of = recovery.worker.as_ref().map_or_else(String::new, |worker| format!(" from {worker}"));
        format!("{}{of}, {}", recovery.reason, exact(recovery.at, now))
    });
    let facts = [
        ("state", Some(format!("{}{silent}", job.state))),
        ("priority", Some(job.priority.to_string())),
        ("dispatched", time(job.dispatched_at)),
        ("waits since", time(job.waiting_since)),
        ("expires", time(job.expires_at)),
        ("due", time(job.due_at)),
        ("started", time(job.started_at)),
        ("ended", time(job.ended_at)),
        ("worker", job.worker.as_ref().map(ToString::to_string)),
        ("cancel asked for", job.cancel_requested.clone()),
        ("failed runs", Some(format!("{}{}", job.failed_attempts, of(job.options.attempts)))),
        ("stalls", Some(format!("{}{}", job.stalled_count, of(job.options.max_count)))),
        ("recovered", recovery),
        ("timeout", job.options.timeout.map(span)),
        ("error", job.error.as_ref().map(|error| format!("{}: {}", error.code, error.message))),
        ("progress", job.progress.as_ref().map(|progress| format!("{} {}", progress.value, progress.message))),
        ("payload", Some(format!("{} bytes", job.payload_bytes))),
        ("result", (job.result_bytes > 0).then(|| format!("{} bytes", job.result_bytes))),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, shown(&fact?)))).collect()
}

/// An event: when, what, and whatever else it says.
fn told(event: &Event, now: SystemTime) -> (String, String, String) {
    let mut rest = Vec::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(event) {
        for (name, value) in &fields {
            match value {
                _ if ["event", "task", "id", "at_ms"].contains(&name.as_str()) => {}
                Value::Null => {}
                Value::String(text) if text.is_empty() => {}
                Value::String(text) => rest.push(format!("{name}={}", brief(text, 200))),
                other => rest.push(format!("{name}={}", brief(&other.to_string(), 200))),
            }
        }
    }
    (exact(event.at(), now), event.name().to_owned(), rest.join(" "))
}
