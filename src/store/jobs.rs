//! Dispatch, settle, cancel, trim and the reads of single jobs.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::scripts::{self, Text};
#[cfg(feature = "testing")]
use super::streams;
use super::{Connection, Key, LARGE, TaskKeys, WIRE_VERSION};
use crate::error::{Error, classify};
use crate::job::{MESSAGE_LIMIT, StoredError};
use crate::options::{MIN_AGE_MS, Overrides, Priority, Resolved, to_ms};
use crate::shown::cut;
use crate::state::JobState;

/// The most jobs that one call of `dispatch` or `settle` carries: larger batches are slower a job.
pub(crate) const BATCH: usize = 200;

/// The most bytes of payloads, or of results, that one call of many jobs carries: more would keep the server from others for
/// milliseconds. `lua/lib/claim.lua` and `lua/trim.lua` keep the same bound.
pub(crate) const BATCH_BYTES: usize = LARGE;

/// The most bytes of an error that its event has. `lua/lib/finish.lua` keeps the same bound.
const BRIEF: usize = 160;

/// How many of the keys of `dispatch` plain jobs need.
const PLAIN_KEYS: usize = 8;

/// How a worker's lines of settle calls are told apart, behind the number of a call and behind the worker in `calls`.
/// The last one is for large outcomes: nothing else waits behind them.
pub(crate) const LINES: [&str; 3] = ["", "/2", "/3"];

/// A job to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: crate::job::JobId,
    pub(crate) payload: Vec<u8>,
    pub(crate) priority: Option<Priority>,
    pub(crate) overrides: Overrides,
    /// For an id that does not tell the time itself, ms since 1970.
    pub(crate) dispatched_at_ms: Option<u64>,
}

impl AsRef<NewJob> for NewJob {
    fn as_ref(&self) -> &NewJob {
        self
    }
}

impl NewJob {
    /// Whether it has an id and a payload and no more.
    fn is_plain(&self) -> bool {
        let NewJob { id: _, payload: _, priority, overrides, dispatched_at_ms } = self;
        priority.is_none() && overrides.is_empty() && dispatched_at_ms.is_none()
    }
}

/// Writes the jobs. Returns, job by job, whether it existed before. `all_keys` is set when the task has a default priority,
/// for which its jobs need more keys than a plain one.
pub(crate) async fn dispatch(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[impl AsRef<NewJob>],
    all_keys: &AtomicBool,
) -> Result<Vec<bool>, Error> {
    let plain = !all_keys.load(Ordering::Relaxed) && jobs.iter().all(|job| job.as_ref().is_plain());
    let mut reply = dispatch_call(keys, jobs, plain)?.call(conn).await?;
    let mut word: String = reply.next()?;
    if word == "more" {
        all_keys.store(true, Ordering::Relaxed);
        reply = dispatch_call(keys, jobs, false)?.call(conn).await?;
        word = reply.next()?;
    }
    if word != "dispatched" {
        return Err(reply.unexpected(&word));
    }
    let mut existed = vec![false; jobs.len()];
    for index in reply.rest::<usize>()? {
        if let Some(slot) = index.checked_sub(1).and_then(|i| existed.get_mut(i)) {
            *slot = true;
        }
    }
    Ok(existed)
}

/// The keys of what every job has come first, and are enough for plain jobs.
fn dispatch_call(keys: &TaskKeys, jobs: &[impl AsRef<NewJob>], plain: bool) -> Result<scripts::Invocation, Error> {
    let mut call = if plain { scripts::DISPATCH.on_first(keys, PLAIN_KEYS) } else { scripts::DISPATCH.on(keys) };
    call.arg(WIRE_VERSION).arg(jobs.len());
    for job in jobs.iter().map(AsRef::as_ref) {
        call.arg(job.id.as_str()).arg(job.payload.as_slice());
    }
    for (index, job) in jobs.iter().map(AsRef::as_ref).enumerate() {
        let mut extra = |column: &str, value: String| {
            call.arg(column).arg(index + 1).arg(value);
        };
        if let Some(delay) = job.overrides.delay {
            extra("delay", to_ms(delay).to_string());
        }
        if let Some(priority) = job.priority {
            extra("priority", priority.as_str().to_owned());
        }
        if let Some(max_count) = job.overrides.max_count {
            extra("maxCount", max_count.to_string());
        }
        if !job.overrides.is_empty() {
            let json = serde_json::to_string(&job.overrides)
                .map_err(|source| Error::Codec { what: "the job's overrides".to_owned(), source })?;
            extra("options", json);
        }
        if let Some(at) = job.dispatched_at_ms {
            extra("dispatchedAt", at.to_string());
        }
    }
    Ok(call)
}

/// What became of one run of a job.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
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
    /// Requeued: to the front of its list, no attempt used.
    Requeue,
}

/// One outcome to be reported.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) id: crate::job::JobId,
    pub(crate) fence: u64,
    pub(crate) outcome: Outcome,
    /// Which run of the job it was, from 1.
    pub(crate) attempt: u32,
    /// Of the job's payload, which a task that keeps nothing removes with it.
    pub(crate) payload_bytes: usize,
    /// How long the handler ran.
    pub(crate) ran: Duration,
}

impl Report {
    /// A job that is requeued without a run.
    pub(crate) fn requeue(id: crate::job::JobId, fence: u64) -> Report {
        Report { id, fence, outcome: Outcome::Requeue, attempt: 0, payload_bytes: 0, ran: Duration::ZERO }
    }

    /// Whether nothing follows: the job completed or failed.
    pub(crate) fn ends_the_job(&self) -> bool {
        matches!(self.outcome, Outcome::Completed(_) | Outcome::Failed { .. })
    }

    /// How large it is on its way, but for a few bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.outcome {
            Outcome::Completed(value) => value.as_ref().map_or(0, Vec::len),
            Outcome::Failed { error, .. } | Outcome::Retry { error, .. } | Outcome::Undecodable { error, .. } => {
                error.message.len().min(MESSAGE_LIMIT)
            }
            Outcome::Snooze { .. } | Outcome::Requeue => 0,
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

/// The input of a claimed job.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Here(Vec<u8>),
    /// Too large to come with others: its size, for [`payload`].
    Apart(usize),
}

impl Payload {
    /// How large it is.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::Apart(bytes) => *bytes,
        }
    }
}

/// A job that this worker holds from now on.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: crate::job::JobId,
    pub(crate) fence: u64,
    pub(crate) payload: Payload,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    /// JSON of the overrides of its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) deferred: Deferred,
}

/// How often a job was put off without an attempt being used. In Redis it is the two counts with a colon between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// By [`JobError::snooze`](crate::JobError::snooze).
    pub(crate) snoozed: u32,
    /// Since its payload could not be read.
    pub(crate) undecodable: u32,
}

impl Deferred {
    /// Reads the column; what is none of ours counts as nothing.
    pub(crate) fn from_wire(text: &str) -> Deferred {
        let (snoozed, undecodable) = text.split_once(':').unwrap_or_default();
        Deferred { snoozed: snoozed.parse().unwrap_or(0), undecodable: undecodable.parse().unwrap_or(0) }
    }
}

impl fmt::Display for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.snoozed, self.undecodable)
    }
}

/// The answer to a settle.
#[derive(Debug)]
pub(crate) enum SettleReply {
    Settled(Settled),
    /// A later call of the line was answered already.
    Stale,
    /// The worker has stopped, says the server.
    Closed,
    /// The server has lost the options of the task, and did nothing.
    Undeclared,
}

/// What a settle did.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) lost: Vec<u64>,
    pub(crate) cancelled: Vec<u64>,
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) next_due: Option<Duration>,
}

/// Reports outcomes and claims up to `want` jobs. The number grows by one from call to call of a worker's line on a task
/// (see [`LINES`]); a call whose answer was lost is repeated with its number.
pub(crate) async fn settle(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (line, number): (usize, u64),
    ask: Duration,
    want: usize,
    reports: &[Report],
) -> Result<SettleReply, Error> {
    let completed = || {
        reports.iter().filter_map(|report| match &report.outcome {
            Outcome::Completed(value) => Some((report, value)),
            _ => None,
        })
    };
    let count = completed().count();
    let values = completed().filter(|(_, value)| value.is_some()).count();
    let mut call = scripts::SETTLE.on(keys);
    let mut how_many = count.to_string();
    completed().for_each(|(report, _)| {
        // Writing to a text does not fail.
        let _ = write!(how_many, " {}", report.ran.as_micros());
    });
    call.arg(format!("{number}{}", LINES[line])).arg(worker).arg(to_ms(ask)).arg(want).arg(how_many).arg(values);
    completed().for_each(|(report, _)| {
        call.arg(report.id.as_str());
    });
    completed().for_each(|(report, _)| {
        call.arg(report.fence);
    });
    for (index, (_, value)) in completed().enumerate() {
        if let Some(value) = value {
            call.arg(index + 1).arg(value.as_slice());
        }
    }
    for report in reports {
        let (kind, attempt, detail, error) = match &report.outcome {
            Outcome::Completed(_) => continue,
            Outcome::Failed { attempt, error } => {
                let detail = format!("{} {}", words_of(error), report.ran.as_micros());
                ("failed", attempt.to_string(), detail, error.to_json())
            }
            Outcome::Retry { attempt, delay, error } => {
                let detail = format!("{} {} {}", to_ms(*delay), words_of(error), report.ran.as_micros());
                ("retry", attempt.to_string(), detail, error.to_json())
            }
            Outcome::Snooze { deferred, delay } => {
                ("snooze", deferred.to_string(), to_ms(*delay).to_string(), String::new())
            }
            Outcome::Undecodable { deferred, delay, error } => {
                ("undecodable", deferred.to_string(), to_ms(*delay).to_string(), error.to_json())
            }
            Outcome::Requeue => ("requeue", "0".to_owned(), String::new(), String::new()),
        };
        call.arg(report.id.as_str()).arg(report.fence).arg(kind).arg(attempt).arg(detail).arg(error);
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "settled" => {}
        "stale" => return Ok(SettleReply::Stale),
        "closed" => return Ok(SettleReply::Closed),
        "undeclared" => return Ok(SettleReply::Undeclared),
        other => return Err(reply.unexpected(other)),
    }
    let (lost, cancelled) = (fences(&mut reply)?, fences(&mut reply)?);
    let first_fence: u64 = reply.next()?;
    let Text(ids) = reply.next()?;
    let payloads: Vec<redis::Value> = reply.next()?;
    let extras: Vec<(usize, Text, Text, Text, Text, Text)> = reply.next()?;
    let next_due: String = reply.next()?;
    let mut claimed: Vec<Claimed> = ids
        .split_ascii_whitespace()
        .zip(payloads)
        .zip(first_fence..)
        .map(|((id, payload), fence)| Claimed {
            id: crate::job::JobId::from_wire(id),
            fence,
            payload: match payload {
                redis::Value::BulkString(bytes) => Payload::Here(bytes),
                redis::Value::Int(bytes) => Payload::Apart(usize::try_from(bytes).unwrap_or(0)),
                _ => Payload::Here(Vec::new()),
            },
            failed_attempts: 0,
            stalled_count: 0,
            overrides: String::new(),
            dispatched_at_ms: None,
            deferred: Deferred::default(),
        })
        .collect();
    for (position, Text(attempt), Text(stalled), Text(overrides), Text(dispatched_at), Text(deferred)) in extras {
        if let Some(job) = position.checked_sub(1).and_then(|i| claimed.get_mut(i)) {
            // The script checked them when it claimed; in a repeated answer they are read anew.
            job.failed_attempts = attempt.parse().unwrap_or(0);
            job.stalled_count = stalled.parse().unwrap_or(0);
            job.overrides = overrides;
            job.dispatched_at_ms = dispatched_at.parse().ok();
            job.deferred = Deferred::from_wire(&deferred);
        }
    }
    // So a repeated answer names a job that was lost in the meantime.
    claimed.retain(|job| job.id.as_str() != "{}");
    let next_due = next_due.parse().ok().map(Duration::from_millis);
    Ok(SettleReply::Settled(Settled { lost, cancelled, claimed, next_due }))
}

/// What the event of a failure says: the code, and the beginning of the message as one word.
fn words_of(error: &StoredError) -> String {
    const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    let brief = utf8_percent_encode(cut(&error.message, BRIEF), UNSAFE).to_string();
    format!("{} {}", error.code, if brief.is_empty() { "-" } else { &brief })
}

/// The payload of a job; `None` when the job is gone.
pub(crate) async fn payload(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>, Error> {
    value(conn, keys, Key::Payload, id).await
}

/// The value of a completed job; `None` when none is kept.
pub(crate) async fn result(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<Vec<u8>>, Error> {
    value(conn, keys, Key::Result, id).await
}

/// Read by a plain command: through a script the server would copy it several times.
async fn value(conn: &mut impl Connection, keys: &TaskKeys, column: Key, id: &str) -> Result<Option<Vec<u8>>, Error> {
    redis::cmd("HGET").arg(keys.get(column)).arg(id).query_async(conn).await.map_err(|e| classify("value", e))
}

/// The values of completed jobs, in their order.
pub(crate) async fn results(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::JobId],
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    columns(conn, keys.get(Key::Result), ids).await
}

/// Of jobs that did not complete, in their order: the failed runs, the stalls and the error.
pub(crate) async fn failures(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::JobId],
) -> Result<Vec<(u32, u32, String)>, Error> {
    let number = |text: Option<Text>| text.and_then(|Text(text)| text.parse().ok()).unwrap_or(0);
    let attempts: Vec<Option<Text>> = columns(conn, keys.get(Key::Attempt), ids).await?;
    let stalls: Vec<Option<Text>> = columns(conn, keys.get(Key::StalledCount), ids).await?;
    let errors: Vec<Option<Text>> = columns(conn, keys.get(Key::Error), ids).await?;
    let errors = errors.into_iter().map(|error| error.map_or_else(String::new, |Text(error)| error));
    Ok(attempts.into_iter().zip(stalls).zip(errors).map(|((a, s), error)| (number(a), number(s), error)).collect())
}

async fn columns<T: redis::FromRedisValue>(
    conn: &mut impl Connection,
    column: &str,
    ids: &[crate::job::JobId],
) -> Result<Vec<T>, Error> {
    let mut cmd = redis::cmd("HMGET");
    cmd.arg(column);
    for id in ids {
        cmd.arg(id.as_str());
    }
    cmd.query_async(conn).await.map_err(|e| classify("value", e))
}

/// Makes sure that our user of the server may run every command that writes, as far as the server can tell.
///
/// # Errors
/// `Unsupported` with what is missing.
pub(crate) async fn check_rights(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    let mut reply = scripts::RIGHTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    let missing: Vec<String> = reply.rest()?;
    if missing.is_empty() {
        return Ok(());
    }
    let rights: Vec<String> = missing.chunks(2).map(|right| right.join(" on ")).collect();
    let what = format!("the user of the server may not run {}; grant it, or jobs would be lost", rights.join(", "));
    Err(Error::Unsupported { what })
}

/// Ends the lines of calls of a worker that has stopped.
pub(crate) async fn close(conn: &mut impl Connection, keys: &TaskKeys, worker: &str) -> Result<(), Error> {
    let mut call = scripts::CLOSE.on(keys);
    for line in LINES {
        call.arg(format!("{worker}{line}"));
    }
    call.call(conn).await.map(drop)
}

/// The jobs that a call of settle claimed, from its record: those that are not ours any more are among them. None when
/// the call was not executed yet.
pub(crate) async fn claimed_by(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (line, number): (usize, u64),
) -> Result<Vec<(crate::job::JobId, u64)>, Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(keys.get(Key::Calls)).arg(format!("{worker}{}", LINES[line]));
    let record: Option<Vec<u8>> = cmd.query_async(conn).await.map_err(|e| classify("calls", e))?;
    let record = String::from_utf8(record.unwrap_or_default()).unwrap_or_default();
    let rows: Vec<&str> = record.split('\n').collect();
    match rows[..] {
        [call, _, _, fence, ids] if call.parse() == Ok(number) => {
            let ids = ids.split_ascii_whitespace().map(crate::job::JobId::from_wire);
            Ok(ids.zip(fence.parse().unwrap_or(0)..).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The next word of the reply: fences with spaces between.
fn fences(reply: &mut scripts::Reply) -> Result<Vec<u64>, Error> {
    let words: String = reply.next()?;
    words.split_ascii_whitespace().map(|word| word.parse().map_err(|_| reply.unexpected(word))).collect()
}

/// The answer to a cancel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CancelReply {
    Cancelled,
    Requested,
    Terminal(JobState),
    Unknown,
}

/// Cancels a job that waits, or asks the worker that holds it.
pub(crate) async fn cancel(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    id: &str,
    reason: &str,
) -> Result<CancelReply, Error> {
    let mut call = scripts::CANCEL.on(keys);
    let mut reply = call.arg(id).arg(reason).arg(keys.cancel_channel()).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "cancelled" => Ok(CancelReply::Cancelled),
        "requested" => Ok(CancelReply::Requested),
        "terminal" => Ok(CancelReply::Terminal(reply.next::<String>()?.parse()?)),
        "unknown" => Ok(CancelReply::Unknown),
        other => Err(reply.unexpected(other)),
    }
}

/// What a call of trim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trimmed {
    /// So many jobs are gone; `more` tells whether others may follow at once.
    Jobs { count: usize, more: bool },
    /// The server has lost the options of the task.
    Undeclared,
}

/// Removes terminal jobs past the limits that are declared, at most `limit` of them.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    worker: &str,
    limit: usize,
) -> Result<Trimmed, Error> {
    let mut call = scripts::TRIM.on_place(keys, place);
    let name = match place {
        Key::Failed => "Failed",
        Key::Cancelled => "Cancelled",
        _ => "Completed",
    };
    let mut reply = call.arg(worker).arg(name).arg(MIN_AGE_MS).arg(limit).call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "trimmed" => Ok(Trimmed::Jobs { count: reply.next()?, more: reply.next::<u8>()? == 1 }),
        "undeclared" => Ok(Trimmed::Undeclared),
        other => Err(reply.unexpected(other)),
    }
}

/// The options of a task, as they are in force.
#[derive(Debug)]
pub(crate) enum Declared {
    /// They are this caller's: when it started, and what changed: name, old value, new value.
    Ours(u64, Vec<(String, String, String)>),
    /// A later start has declared them, at this time of the server, ms.
    Theirs(u64),
}

/// Writes a task's options for the scripts. `stamp` is what the worker was given at its start; `None`: it starts now.
pub(crate) async fn declare(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    stamp: Option<u64>,
    options: &Resolved,
) -> Result<Declared, Error> {
    let mut call = scripts::DECLARE.on(keys);
    call.arg(WIRE_VERSION).arg(stamp.map(|stamp| stamp.to_string()).unwrap_or_default());
    call.arg("maxCount").arg(options.max_count);
    call.arg("heartbeat").arg(options.heartbeat.as_str());
    call.arg("eventMode").arg(options.events.as_str());
    call.arg("priority").arg(options.priority.as_str());
    let text = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let keep = &options.retention;
    for (place, limit) in [("Completed", keep.completed), ("Failed", keep.failed), ("Cancelled", keep.cancelled)] {
        call.arg(format!("keep{place}")).arg(if limit.remove_at_once { "0" } else { "1" });
        call.arg(format!("maxAge{place}")).arg(text(limit.max_age_ms));
        call.arg(format!("maxCount{place}")).arg(text(limit.max_count));
    }
    let mut reply = call.call(conn).await?;
    let word: String = reply.next()?;
    let stamp = reply.next()?;
    if word == "kept" {
        return Ok(Declared::Theirs(stamp));
    }
    let words: Vec<String> = reply.next()?;
    let changed = words.chunks_exact(3).map(|c| (c[0].clone(), c[1].clone(), c[2].clone())).collect();
    Ok(Declared::Ours(stamp, changed))
}

/// Whether this version may work the task.
///
/// # Errors
/// `Unsupported` when a newer one wrote it.
pub(crate) async fn check_wire(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(keys.get(Key::Meta)).arg("wire");
    let wire: Option<String> = cmd.query_async(conn).await.map_err(|e| classify("declare", e))?;
    match wire {
        Some(wire) if wire.parse::<u32>().is_ok_and(|wire| wire > WIRE_VERSION) => {
            Err(Error::Unsupported { what: format!("the task was written by wire version {wire}") })
        }
        _ => Ok(()),
    }
}

/// One job as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) state: JobState,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) error: String,
    pub(crate) deferred: Deferred,
}

/// Reads a job without its values; `None` when it never was, or was trimmed.
pub(crate) async fn inspect(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<StoredJob>, Error> {
    let mut call = scripts::INSPECT.on(keys);
    let mut reply = call.arg(id).call(conn).await?;
    if reply.next::<String>()? != "found" {
        return Ok(None);
    }
    let state = reply.next::<String>()?.parse()?;
    let (Text(attempt), Text(stalled), Text(error), Text(deferred)) =
        (reply.next()?, reply.next()?, reply.next()?, reply.next()?);
    Ok(Some(StoredJob {
        state,
        failed_attempts: attempt.parse().unwrap_or(0),
        stalled_count: stalled.parse().unwrap_or(0),
        error,
        deferred: Deferred::from_wire(&deferred),
    }))
}

/// The most jobs of which one call of [`states`] asks.
pub(crate) const LOOK_BATCH: usize = 500;

/// Where jobs are.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Whether the workers of the task write its events; `None` when no worker has told.
    pub(crate) events: Option<bool>,
    /// Of each job its state and the size of its result in bytes; `None` of one that is not there.
    pub(crate) jobs: Vec<Option<(JobState, usize)>>,
}

/// Tells where the jobs are, at most [`LOOK_BATCH`] of them. No value is read.
pub(crate) async fn states(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::JobId],
) -> Result<Looked, Error> {
    let mut call = scripts::STATES.on(keys);
    for id in ids {
        call.arg(id.as_str());
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let mode: String = reply.next()?;
    let (states, bytes): (Vec<String>, Vec<usize>) = (reply.next()?, reply.next()?);
    let jobs = states.iter().zip(bytes).map(|(state, bytes)| match state.as_str() {
        "unknown" => Ok(None),
        state => Ok(Some((state.parse()?, bytes))),
    });
    let jobs = jobs.collect::<Result<_, Error>>()?;
    Ok(Looked { events: (!mode.is_empty()).then(|| mode != "off"), jobs })
}

/// How many jobs of a task wait, are delayed, running, completed, failed and cancelled, counted in one step.
pub(crate) async fn counts(conn: &mut impl Connection, keys: &TaskKeys) -> Result<[u64; 6], Error> {
    let mut reply = scripts::COUNTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    reply.rest()?.try_into().map_err(|counts| reply.unexpected(&format!("{counts:?}")))
}

/// The delayed jobs, each with the column `deferred`: for tests, whose tasks are small.
#[cfg(feature = "testing")]
pub(crate) async fn delayed(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<(String, String)>, Error> {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(keys.get(Key::Delayed)).arg(0).arg(-1);
    let ids: Vec<String> = cmd.query_async(conn).await.map_err(|e| classify("drain", e))?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<_> = ids.iter().map(|id| crate::job::JobId::from_wire(id.as_str())).collect();
    let deferred: Vec<Option<String>> = columns(conn, keys.get(Key::Deferred), &named).await?;
    Ok(ids.into_iter().zip(deferred.into_iter().map(Option::unwrap_or_default)).collect())
}

/// Makes a delayed job due, and tells the workers.
#[cfg(feature = "testing")]
pub(crate) async fn bring_forward(conn: &mut (impl Connection + Send), keys: &TaskKeys, id: &str) -> Result<(), Error> {
    let mut cmd = redis::cmd("ZADD");
    cmd.arg(keys.get(Key::Delayed)).arg("XX").arg(0).arg(id);
    let () = cmd.query_async(conn).await.map_err(|e| classify("drain", e))?;
    streams::mark_wake(conn, keys).await
}
