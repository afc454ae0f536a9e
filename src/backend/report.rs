//! The outcomes that a worker reports, and how a settle call carries them.

use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::scripts::Invocation;
use crate::escape::cut;
use crate::job::failure::StoredError;
use crate::job::snooze::Snoozes;
use crate::limits::{BATCH, BATCH_BYTES, BRIEF, MESSAGE_LIMIT};
use crate::unix_time::to_ms;

#[derive(Clone, Debug)]
pub(crate) enum Disposition {
    /// The value as JSON; `None` for null.
    Completed(Option<Vec<u8>>),
    /// The job ends: the failed runs so far, including this one, and the reason.
    Failed { attempt: u32, error: StoredError },
    /// Another run follows after the delay.
    Retry { attempt: u32, delay: Duration, error: StoredError },
    /// The handler asked to run later. No attempt is used.
    Snooze { snoozes: Snoozes, delay: Duration },
    /// The job returns to the front of its list, and its task rests for this time. No attempt is used.
    RateLimited { rest: Duration },
    /// The handler could not decode the payload, but another version of it may. No attempt is used.
    Undecodable { snoozes: Snoozes, delay: Duration, error: StoredError },
    /// The hook has run, or failed for good: the job ends with its stored outcome.
    Hooked(Option<StoredError>),
    /// The hook failed, `failed` times so far, and runs again after the delay.
    HookRetry { failed: u32, delay: Duration, error: StoredError },
    /// The job's workflow no longer wants it. It is removed before its handler begins.
    Drop,
    /// The job returns to the front of its list. No attempt is used.
    Requeue,
    /// The job was claimed ahead and now begins, in a free slot or before it has one (`early`). The worker keeps it.
    Begin { early: bool },
    /// The job did not begin after all, and counts as claimed ahead again.
    Unstart,
}

impl Disposition {
    /// Whether the worker no longer holds the job once this is recorded.
    pub(crate) fn ends_the_hold(&self) -> bool {
        !matches!(self, Disposition::Begin { .. } | Disposition::Unstart)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) id: crate::job::id::JobId,
    pub(crate) fence: u64,
    pub(crate) outcome: Disposition,
    /// The run's number, from 1.
    pub(crate) attempt: u32,
    /// The size of the job's payload, which may be removed with the job.
    pub(crate) payload_bytes: usize,
    pub(crate) ran: Duration,
}

impl Report {
    pub(crate) fn requeue(id: crate::job::id::JobId, fence: u64) -> Report {
        Report::without_run(id, fence, Disposition::Requeue)
    }

    pub(crate) fn without_run(id: crate::job::id::JobId, fence: u64, outcome: Disposition) -> Report {
        Report { id, fence, outcome, attempt: 0, payload_bytes: 0, ran: Duration::ZERO }
    }

    /// Whether its handler was rate limited.
    pub(crate) fn is_rate_limited(&self) -> bool {
        matches!(self.outcome, Disposition::RateLimited { .. })
    }

    /// Whether the job completed or failed, or its hook has run.
    pub(crate) fn ends_the_job(&self) -> bool {
        matches!(self.outcome, Disposition::Completed(_) | Disposition::Failed { .. } | Disposition::Hooked(_))
    }

    /// About how many bytes it adds to a call.
    pub(crate) fn bytes(&self) -> usize {
        match &self.outcome {
            Disposition::Completed(value) => value.as_ref().map_or(0, Vec::len),
            Disposition::Failed { error, .. }
            | Disposition::Retry { error, .. }
            | Disposition::HookRetry { error, .. }
            | Disposition::Undecodable { error, .. } => error.message.len().min(MESSAGE_LIMIT),
            Disposition::Hooked(error) => error.as_ref().map_or(0, |error| error.message.len().min(MESSAGE_LIMIT)),
            Disposition::Snooze { .. }
            | Disposition::RateLimited { .. }
            | Disposition::Drop
            | Disposition::Requeue
            | Disposition::Begin { .. }
            | Disposition::Unstart => 0,
        }
    }
}

/// How many of the reports fit into one call by number and by bytes; at least one if there is any.
pub(crate) fn fitting<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for report in reports.take(BATCH) {
        // The server copies the report and may have to free the payload.
        bytes += report.bytes() + if report.ends_the_job() { report.payload_bytes } else { 0 };
        if count > 0 && bytes > BATCH_BYTES {
            break;
        }
        count += 1;
    }
    count
}

/// The words about a failure in its event: the code, and the beginning of the message as one word.
fn words_of(error: &StoredError) -> String {
    const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    let brief = utf8_percent_encode(cut(&error.message, BRIEF), UNSAFE).to_string();
    format!("{} {}", error.code, if brief.is_empty() { "-" } else { &brief })
}

/// Adds the arguments of `lua/settle.lua` from `completed` on: completed jobs, those that begin, then the others.
pub(super) fn add_reports(call: &mut Invocation, reports: &[Report]) {
    let completed = || {
        reports.iter().filter_map(|report| match &report.outcome {
            Disposition::Completed(value) => Some((report, value)),
            _ => None,
        })
    };
    let count = completed().count();
    let values = completed().filter(|(_, value)| value.is_some()).count();
    let ran: Vec<String> = completed().map(|(report, _)| report.ran.as_micros().to_string()).collect();
    let begins = || reports.iter().filter(|report| matches!(report.outcome, Disposition::Begin { .. }));
    let with_slot =
        reports.iter().filter(|report| matches!(report.outcome, Disposition::Begin { early: false })).count();
    call.arg(count).arg(ran.join(" ")).arg(values).arg(begins().count()).arg(with_slot);
    call.args(completed().map(|(report, _)| report.id.as_str())).args(completed().map(|(report, _)| report.fence));
    call.args((1..).zip(completed()).filter_map(|(at, (_, value)): (usize, _)| Some((at, value.as_ref()?))));
    call.args(begins().map(|report| report.id.as_str())).args(begins().map(|report| report.fence));
    let others = reports.iter().filter_map(|report| Some((report, words_of_outcome(report)?)));
    call.args(others.map(|(report, words)| (report.id.as_str(), report.fence, words)));
}

/// The kind, attempt, detail and error of an outcome; `None` for jobs that completed or begin.
fn words_of_outcome(report: &Report) -> Option<(&'static str, String, String, String)> {
    Some(match &report.outcome {
        Disposition::Completed(_) | Disposition::Begin { .. } => return None,
        Disposition::Failed { attempt, error } => {
            let detail = format!("{} {}", words_of(error), report.ran.as_micros());
            ("failed", attempt.to_string(), detail, error.to_json())
        }
        Disposition::Retry { attempt, delay, error } => {
            let detail = format!("{} {} {}", to_ms(*delay), words_of(error), report.ran.as_micros());
            ("retry", attempt.to_string(), detail, error.to_json())
        }
        Disposition::Snooze { snoozes, delay } => {
            ("snooze", snoozes.to_string(), to_ms(*delay).to_string(), String::new())
        }
        Disposition::Undecodable { snoozes, delay, error } => {
            ("undecodable", snoozes.to_string(), to_ms(*delay).to_string(), error.to_json())
        }
        Disposition::Hooked(error) => {
            let detail = error.as_ref().map(words_of).unwrap_or_default();
            ("hooked", "0".to_owned(), detail, String::new())
        }
        Disposition::HookRetry { failed, delay, error } => {
            let detail = format!("{} {}", to_ms(*delay), words_of(error));
            ("hook_retry", failed.to_string(), detail, String::new())
        }
        Disposition::Drop => ("drop", "0".to_owned(), String::new(), String::new()),
        Disposition::RateLimited { rest } => {
            ("requeue", "0".to_owned(), to_ms(*rest).max(1).to_string(), String::new())
        }
        Disposition::Requeue => ("requeue", "0".to_owned(), String::new(), String::new()),
        Disposition::Unstart => ("unstart", "0".to_owned(), String::new(), String::new()),
    })
}
