//! Describes jobs: their facts, why they failed, and what an act or a repair did.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;

use super::super::act_report::BulkReport;
use super::super::audit_report::{Finding, Inconsistency};
use super::super::job::JobReport;
use super::super::limits::LimitReached;
use super::super::page::JobRow;
use super::super::text::{brief, exact, many, shown, span};
use crate::job::state::JobState;
use crate::stall::action::StallReason;

/// `heartline work` stores this as the progress of a job whose program it cannot start.
pub const PROGRAM_NOT_STARTED: &str = "program_not_started";

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

/// How much of a value is shown in the line of an event.
const VALUE: usize = 200;

/// The facts of a job, each with its name.
#[must_use]
pub fn facts(job: &JobReport, now: SystemTime) -> Vec<(&'static str, String)> {
    let time = |at: Option<SystemTime>| at.map(|at| exact(at, now));
    let bytes = |bytes: usize| (bytes > 0).then(|| many(bytes as u64, "byte"));
    let of = |most: Option<u32>| most.map_or_else(String::new, |most| format!(" of {most}"));
    let recovery = job.recovery.as_ref().map(|recovery| {
        let of = recovery.worker.as_ref().map_or_else(String::new, |worker| format!(" from {worker}"));
        format!("{}{of}, {}", recovery.reason, exact(recovery.at, now))
    });
    let facts = [
        ("state", Some(job.state.to_string())),
        ("priority", Some(job.priority.to_string())),
        ("dispatched", time(job.dispatched_at)),
        ("waiting since", time(job.enqueued_at)),
        ("waits because", waits_because(job, now)),
        ("expires", time(job.expires_at)),
        ("due", time(job.due_at)),
        ("started", time(job.started_at)),
        ("ended", time(job.ended_at)),
        ("worker", job.worker.as_ref().map(ToString::to_string)),
        ("fence", job.fence.map(|fence| fence.to_string())),
        ("cancel requested", job.cancel_requested.clone()),
        ("unique key", job.unique_key.clone()),
        ("key", job.key.clone()),
        ("failed runs", Some(format!("{}{}", job.failed_attempts, of(job.options.attempts)))),
        ("stalls", Some(format!("{}{}", job.stalled_count, of(job.options.max_count)))),
        ("recovered", recovery),
        ("snoozed", (job.snoozed_count > 0).then(|| job.snoozed_count.to_string())),
        ("timeout", job.options.timeout.map(span)),
        ("error", job.error.as_ref().map(|error| format!("{}: {}", error.code, error.message))),
        ("progress", job.progress.as_ref().map(|progress| format!("{} {}", progress.value, progress.message))),
        ("payload", Some(many(job.payload_bytes as u64, "byte"))),
        ("result", bytes(job.result_bytes)),
        ("checkpoint", bytes(job.checkpoint_bytes)),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, shown(&fact?)))).collect()
}

/// Why the job waits: a limit of its task, or its key.
fn waits_because(job: &JobReport, now: SystemTime) -> Option<String> {
    match (&job.lane, job.limit) {
        (_, limit @ Some(LimitReached::MaxRunning | LimitReached::Resting { .. })) => super::task::limit(limit, now),
        (Some(lane), _) => Some(super::lane::waits_because(lane, now)),
        (None, _) => None,
    }
}

/// How many jobs an act changed, and how.
#[must_use]
pub fn changed(report: &BulkReport, done: &str) -> String {
    let changed = report.done - report.cancelled_instead;
    let asked = many(report.requested, "running job");
    match (report.cancelled_instead, report.requested) {
        (0, 0) => format!("{changed} {done}"),
        (cancelled, 0) => format!("{changed} {done}, {cancelled} cancelled, as requested before"),
        // Only a cancel asks workers.
        _ if changed == 0 => format!("{asked} asked to stop"),
        _ => format!("{changed} {done}, {asked} asked to stop"),
    }
}

/// An error code, how many of the jobs read have it, and the last of them.
#[derive(Clone, Debug, Serialize)]
pub struct CodeCount {
    /// The code.
    pub code: String,
    /// How many jobs have it.
    pub jobs: u64,
    /// When the first of them ended, of those that were read.
    #[serde(skip)]
    pub first_at: Option<SystemTime>,
    /// When the last of them ended.
    #[serde(skip)]
    pub last_at: Option<SystemTime>,
    /// The id of that job.
    pub last_id: String,
    /// The beginning of its message.
    pub last_message: String,
}

/// The error codes of these jobs, the most frequent first. The jobs are sorted with the latest first.
#[must_use]
pub fn codes(jobs: &[JobRow]) -> Vec<CodeCount> {
    let mut found: Vec<CodeCount> = Vec::new();
    for job in jobs {
        let code = job.code.as_deref().unwrap_or_default();
        match found.iter_mut().find(|count| count.code == code) {
            Some(count) => {
                count.jobs += 1;
                count.first_at = job.since.or(count.first_at);
            }
            None => found.push(CodeCount {
                code: code.to_owned(),
                jobs: 1,
                first_at: job.since,
                last_at: job.since,
                last_id: job.id.to_string(),
                last_message: job.message.clone().unwrap_or_default(),
            }),
        }
    }
    found.sort_by_key(|count| std::cmp::Reverse(count.jobs));
    found
}

/// The fields of an event other than its name, time, task and job.
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

/// The reason of a stall, with what it means.
#[must_use]
pub fn stall_reason(reason: StallReason) -> String {
    let means = match reason {
        StallReason::Silent => "no heartbeat of its worker came for a whole interval",
        StallReason::HandlerSilent => "no heartbeat of its handler came for a whole interval",
        StallReason::WorkerRestarted => {
            "a worker on its host found its process gone, or another worker took its exclusive name while it was silent"
        }
        StallReason::Replaced => "another worker took the name of its worker",
        StallReason::Manual => "a person decided",
        StallReason::Requeued => "its worker had not begun it",
    };
    format!("{reason} ({means})")
}

/// How many jobs a repair of these runs again or removes, for a confirmation; empty if none.
#[must_use]
pub fn runs_again<'a>(found: impl Iterator<Item = &'a Finding>) -> String {
    let (mut again, mut removed) = (0, 0);
    for finding in found {
        again += usize::from(finding.fault == Inconsistency::Unplaced);
        removed += usize::from(finding.fault == Inconsistency::NoPayload);
    }
    let removed = match removed {
        0 => String::new(),
        jobs => format!("; this REMOVES {}", many(jobs as u64, "job")),
    };
    let again = match again {
        0 => String::new(),
        1 => "; 1 job RUNS AGAIN, even if it had already ended".to_owned(),
        jobs => format!("; {jobs} jobs RUN AGAIN, even those that had already ended"),
    };
    removed + &again
}

/// What a fault of an audit means, and what the repair does.
#[must_use]
pub fn meaning(fault: Inconsistency) -> &'static str {
    match fault {
        Inconsistency::NoPayload => "its payload is lost, so it can never run; the repair REMOVES the rest",
        Inconsistency::TwoPlaces => "it is in more than one list or set; the repair keeps one",
        Inconsistency::Unplaced => {
            "it is in no list or set, and its outcome, if any, is lost; after the repair it RUNS AGAIN at once"
        }
        Inconsistency::EndedUnplaced => {
            "it has ended, but is in no list or set; the repair puts it into its set, as if it had just ended"
        }
        Inconsistency::Unlocked => "it is marked as running, but no worker holds it; the repair removes the mark",
        Inconsistency::Unwatched => "it is held, but no sweep checks it; after the repair the next one does",
        Inconsistency::BothSets => "it counts both as silent and as alive; the repair marks it as alive",
        Inconsistency::StrayCancel => "a cancel is requested, but no worker holds it; the repair drops the request",
        Inconsistency::StrayClaim | Inconsistency::StrayHook => {
            "a mark is left over or missing; the repair corrects it"
        }
        Inconsistency::BadCounter | Inconsistency::BadMeta => {
            "a counter is not a number, or too large; the repair resets it to 0"
        }
        Inconsistency::Miscounted => "the count of list entries is wrong; the repair counts them again",
        Inconsistency::StaleRecord => "a worker that is gone left a record; the repair removes it",
    }
}
