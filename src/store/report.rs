//! What a worker reports of a run.

use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::job::deferred::Deferred;
use crate::job::failure::StoredError;
use crate::limits::{BATCH, BATCH_BYTES, BRIEF, MESSAGE_LIMIT};
use crate::shown::cut;

/// What became of one run of a job.
#[derive(Clone, Debug)]
pub(crate) enum Disposition {
    /// The value as JSON; none when it is null.
    Completed(Option<Vec<u8>>),
    /// The job is over: the failed runs so far, this one included, and the reason.
    Failed { attempt: u32, error: StoredError },
    /// Another run follows after the delay.
    Retry { attempt: u32, delay: Duration, error: StoredError },
    /// The handler wants to run later; no attempt used.
    Snooze { deferred: Deferred, delay: Duration },
    /// The payload is no input of this worker's handler, but may be one of another version's; no attempt used.
    Undecodable { deferred: Deferred, delay: Duration, error: StoredError },
    /// The hook has run, or failed for good: the job ends with its stored outcome.
    Hooked(Option<StoredError>),
    /// The hook failed, this often now, and runs again after the delay.
    HookRetry { failed: u32, delay: Duration, error: StoredError },
    /// The workflow that it belongs to wants it no more: it is removed before its handler begins.
    Drop,
    /// Requeued: to the front of its list, no attempt used.
    Requeue,
    /// It was claimed ahead and begins, in a free slot or before it has one (`early`): no outcome yet, its worker keeps it.
    Begin { early: bool },
    /// It has not begun after all, and is claimed again.
    Unstart,
}

impl Disposition {
    /// Whether the worker holds the job no more, once it is recorded.
    pub(crate) fn ends_the_hold(&self) -> bool {
        !matches!(self, Disposition::Begin { .. } | Disposition::Unstart)
    }
}

/// One outcome to be reported.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) id: crate::job::id::JobId,
    pub(crate) fence: u64,
    pub(crate) outcome: Disposition,
    /// Which run of the job it was, from 1.
    pub(crate) attempt: u32,
    /// Of the job's payload, which a task that keeps nothing removes with it.
    pub(crate) payload_bytes: usize,
    /// How long the handler ran.
    pub(crate) ran: Duration,
}

impl Report {
    /// A job that is requeued without a run.
    pub(crate) fn requeue(id: crate::job::id::JobId, fence: u64) -> Report {
        Report::without_run(id, fence, Disposition::Requeue)
    }

    /// What becomes of a job that did not run.
    pub(crate) fn without_run(id: crate::job::id::JobId, fence: u64, outcome: Disposition) -> Report {
        Report { id, fence, outcome, attempt: 0, payload_bytes: 0, ran: Duration::ZERO }
    }

    /// Whether nothing follows: the job completed or failed.
    pub(crate) fn ends_the_job(&self) -> bool {
        matches!(self.outcome, Disposition::Completed(_) | Disposition::Failed { .. } | Disposition::Hooked(_))
    }

    /// How large it is on its way, but for a few bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.outcome {
            Disposition::Completed(value) => value.as_ref().map_or(0, Vec::len),
            Disposition::Failed { error, .. }
            | Disposition::Retry { error, .. }
            | Disposition::HookRetry { error, .. }
            | Disposition::Undecodable { error, .. } => error.message.len().min(MESSAGE_LIMIT),
            Disposition::Hooked(error) => error.as_ref().map_or(0, |error| error.message.len().min(MESSAGE_LIMIT)),
            Disposition::Snooze { .. }
            | Disposition::Drop
            | Disposition::Requeue
            | Disposition::Begin { .. }
            | Disposition::Unstart => 0,
        }
    }
}

/// How many of the reports one call carries: one at least if there is any, and no more than it may have, in number and in
/// bytes.
pub(crate) fn fitting<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for report in reports.take(BATCH) {
        // What the server copies, and what it may have to free.
        bytes += report.bytes() + if report.ends_the_job() { report.payload_bytes } else { 0 };
        if count > 0 && bytes > BATCH_BYTES {
            break;
        }
        count += 1;
    }
    count
}

/// What the event of a failure says: the code, and the beginning of the message as one word.
pub(super) fn words_of(error: &StoredError) -> String {
    const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    let brief = utf8_percent_encode(cut(&error.message, BRIEF), UNSAFE).to_string();
    format!("{} {}", error.code, if brief.is_empty() { "-" } else { &brief })
}
