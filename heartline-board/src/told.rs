//! A job and what has happened to it, in words: the same on a page and in a terminal.

use std::time::SystemTime;

use heartline::{JobReport, JobState};
use serde::Serialize;
use serde_json::Value;

use crate::text::{brief, exact, shown, span};

/// The states of a job, in the order of its life.
pub const STATES: [JobState; 8] = [
    JobState::Waiting,
    JobState::Delayed,
    JobState::Claimed,
    JobState::Running,
    JobState::Finalizing,
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
];

/// How much of a value stands on the line of an event.
const VALUE: usize = 200;

/// What is known of a job, each fact with its name.
#[must_use]
pub fn facts(job: &JobReport, now: SystemTime) -> Vec<(&'static str, String)> {
    let time = |at: Option<SystemTime>| at.map(|at| exact(at, now));
    let bytes = |bytes: usize| (bytes > 0).then(|| format!("{bytes} bytes"));
    let of = |most: Option<u32>| most.map_or_else(String::new, |most| format!(" of {most}"));
    // As every held job is for up to a third of each interval.
    let silent = if job.is_silent { " (not heard from since the last snapshot)" } else { "" };
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
        ("fence", job.fence.map(|fence| fence.to_string())),
        ("cancel asked for", job.cancel_requested.clone()),
        ("failed runs", Some(format!("{}{}", job.failed_attempts, of(job.options.attempts)))),
        ("stalls", Some(format!("{}{}", job.stalled_count, of(job.options.max_count)))),
        ("recovered", recovery),
        ("snoozed", (job.snoozed_count > 0).then(|| job.snoozed_count.to_string())),
        ("timeout", job.options.timeout.map(span)),
        ("error", job.error.as_ref().map(|error| format!("{}: {}", error.code, error.message))),
        ("progress", job.progress.as_ref().map(|progress| format!("{} {}", progress.value, progress.message))),
        ("payload", Some(format!("{} bytes", job.payload_bytes))),
        ("result", bytes(job.result_bytes)),
        ("checkpoint", bytes(job.checkpoint_bytes)),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, shown(&fact?)))).collect()
}

/// Whatever else an event says, beside what it is, when, and of which job.
#[must_use]
pub fn rest_of(event: &impl Serialize) -> String {
    let mut rest = Vec::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(event) {
        for (name, value) in &fields {
            match value {
                _ if ["event", "task", "id", "at_ms"].contains(&name.as_str()) => {}
                Value::Null => {}
                Value::String(text) if text.is_empty() => {}
                Value::String(text) => rest.push(format!("{name}={}", brief(text, VALUE))),
                other => rest.push(format!("{name}={}", brief(&other.to_string(), VALUE))),
            }
        }
    }
    rest.join(" ")
}
