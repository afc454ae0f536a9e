//! Dispatch, settle, cancel, trim and the reads of single jobs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Connection, Key, TaskKeys, WIRE_VERSION, scripts};
use crate::error::{Error, classify};
use crate::options::{LimitMs, MIN_AGE_MS, Overrides, Priority, Resolved, to_ms};
use crate::state::JobState;

/// The most jobs that one call of `dispatch` or `settle` carries: larger batches are slower a job.
pub(crate) const BATCH: usize = 200;

/// The most bytes of payloads, or of results, that one call carries, unless a single job has more. `lua/lib/claim.lua` keeps
/// the same bound: a call that is too large for the time it is given would be repeated for ever.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How many of the keys of `dispatch` plain jobs need.
const PLAIN_KEYS: usize = 8;

/// How a worker's lines of settle calls are told apart, behind the number of a call and behind the worker in `calls`.
pub(crate) const LINES: [&str; 2] = ["", "/2"];

/// A job to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: crate::job::JobId,
    pub(crate) payload: Vec<u8>,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: Option<Priority>,
    pub(crate) overrides: Overrides,
    /// For an id that does not tell the time itself, ms since 1970.
    pub(crate) dispatched_at_ms: Option<u64>,
}

impl NewJob {
    /// Whether it has an id and a payload and no more.
    fn is_plain(&self) -> bool {
        let NewJob { id: _, payload: _, delay, priority, overrides, dispatched_at_ms } = self;
        delay.is_none() && priority.is_none() && overrides.is_empty() && dispatched_at_ms.is_none()
    }
}

/// Writes the jobs. Returns, job by job, whether it existed before. `all_keys` is set when the task has a default priority,
/// for which its jobs need more keys than a plain one.
pub(crate) async fn dispatch(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[NewJob],
    all_keys: &AtomicBool,
) -> Result<Vec<bool>, Error> {
    let plain = !all_keys.load(Ordering::Relaxed) && jobs.iter().all(NewJob::is_plain);
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
fn dispatch_call(keys: &TaskKeys, jobs: &[NewJob], plain: bool) -> Result<scripts::Invocation, Error> {
    let mut call = if plain { scripts::DISPATCH.on_first(keys, PLAIN_KEYS) } else { scripts::DISPATCH.on(keys) };
    call.arg(WIRE_VERSION).arg(jobs.len());
    for job in jobs {
        call.arg(job.id.as_str()).arg(job.payload.as_slice());
    }
    for (index, job) in jobs.iter().enumerate() {
        let mut extra = |column: &str, value: String| {
            call.arg(column).arg(index + 1).arg(value);
        };
        if let Some(delay) = job.delay {
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
    Failed { attempt: u32, code: String, error: String },
    /// Another run follows after the delay.
    Retry { attempt: u32, delay: Duration, error: String },
    /// Handed back to the front of its list, no attempt used.
    Release,
}

/// One outcome to be reported.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) id: crate::job::JobId,
    pub(crate) fence: u64,
    pub(crate) outcome: Outcome,
}

impl Report {
    /// How large it is on its way, but for a few bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.outcome {
            Outcome::Completed(value) => value.as_ref().map_or(0, Vec::len),
            Outcome::Failed { error, .. } | Outcome::Retry { error, .. } => error.len(),
            Outcome::Release => 0,
        }
    }
}

/// A job that this worker holds from now on.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: crate::job::JobId,
    pub(crate) fence: u64,
    pub(crate) payload: Vec<u8>,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    /// JSON of the overrides of its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) dispatched_at_ms: Option<u64>,
}

/// The answer to a settle.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) lost: Vec<u64>,
    pub(crate) cancelled: Vec<u64>,
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) next_due: Option<Duration>,
}

/// Reports outcomes and claims up to `want` jobs. The number grows by one from call to call of a worker's line on a task
/// (the lines are 0 and 1); a call whose answer was lost is repeated with its number.
pub(crate) async fn settle(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (line, number): (usize, u64),
    ask: Duration,
    want: usize,
    reports: &[Report],
) -> Result<Option<Settled>, Error> {
    let completed = || {
        reports.iter().filter_map(|report| match &report.outcome {
            Outcome::Completed(value) => Some((report, value)),
            _ => None,
        })
    };
    let count = completed().count();
    let values = completed().filter(|(_, value)| value.is_some()).count();
    let mut call = scripts::SETTLE.on(keys);
    call.arg(format!("{number}{}", LINES[line])).arg(worker).arg(to_ms(ask)).arg(want).arg(count).arg(values);
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
            Outcome::Failed { attempt, code, error } => ("failed", *attempt, code.clone(), error.as_str()),
            Outcome::Retry { attempt, delay, error } => ("retry", *attempt, to_ms(*delay).to_string(), error.as_str()),
            Outcome::Release => ("release", 0, String::new(), ""),
        };
        call.arg(report.id.as_str()).arg(report.fence).arg(kind).arg(attempt).arg(detail).arg(error);
    }
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "settled" => {}
        "stale" => return Ok(None),
        other => return Err(reply.unexpected(other)),
    }
    let (lost, cancelled) = (fences(&mut reply)?, fences(&mut reply)?);
    let first_fence: u64 = reply.next()?;
    let ids: String = reply.next()?;
    let payloads: Vec<Vec<u8>> = reply.next()?;
    let extras: Vec<(usize, String, String, String, String)> = reply.next()?;
    let next_due: String = reply.next()?;
    let mut claimed: Vec<Claimed> = ids
        .split_ascii_whitespace()
        .zip(payloads)
        .zip(first_fence..)
        .map(|((id, payload), fence)| Claimed {
            id: crate::job::JobId::from_wire(id),
            fence,
            payload,
            failed_attempts: 0,
            stalled_count: 0,
            overrides: String::new(),
            dispatched_at_ms: None,
        })
        .collect();
    for (position, attempt, stalled, overrides, dispatched_at) in extras {
        if let Some(job) = position.checked_sub(1).and_then(|i| claimed.get_mut(i)) {
            // The script checked them when it claimed; in a repeated answer they are read anew.
            job.failed_attempts = attempt.parse().unwrap_or(0);
            job.stalled_count = stalled.parse().unwrap_or(0);
            job.overrides = overrides;
            job.dispatched_at_ms = dispatched_at.parse().ok();
        }
    }
    // So a repeated answer names a job that was lost in the meantime.
    claimed.retain(|job| job.id.as_str() != "{}");
    Ok(Some(Settled { lost, cancelled, claimed, next_due: next_due.parse().ok().map(Duration::from_millis) }))
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

/// Removes terminal jobs past the limit, at most `limit` of them. Returns how many.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    worker: &str,
    keep: LimitMs,
    limit: usize,
) -> Result<usize, Error> {
    let text = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut call = scripts::TRIM.on_place(keys, place);
    // A task that keeps nothing may have kept some before.
    let (max_age, min_age) = if keep.remove_at_once { (Some(0), 0) } else { (keep.max_age_ms, MIN_AGE_MS) };
    call.arg(worker).arg(text(max_age)).arg(text(keep.max_count)).arg(min_age).arg(limit);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    reply.next()
}

/// Writes a task's options for the scripts. Returns what changed: name, old value, new value.
pub(crate) async fn declare(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    options: &Resolved,
) -> Result<Vec<(String, String, String)>, Error> {
    let keep = |limit: LimitMs| if limit.remove_at_once { "0" } else { "1" };
    let mut call = scripts::DECLARE.on(keys);
    call.arg(WIRE_VERSION).arg("maxCount").arg(options.max_count);
    call.arg("heartbeat").arg(options.heartbeat.as_str());
    call.arg("eventMode").arg(options.events.as_str());
    call.arg("priority").arg(options.priority.as_str());
    call.arg("keepCompleted").arg(keep(options.retention.completed));
    call.arg("keepFailed").arg(keep(options.retention.failed));
    call.arg("keepCancelled").arg(keep(options.retention.cancelled));
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let words: Vec<String> = reply.next()?;
    Ok(words.chunks_exact(3).map(|c| (c[0].clone(), c[1].clone(), c[2].clone())).collect())
}

/// One job as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) state: JobState,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    pub(crate) result: String,
    pub(crate) error: String,
}

/// Reads a job; `None` when it never was, or was trimmed.
pub(crate) async fn inspect(conn: &mut impl Connection, keys: &TaskKeys, id: &str) -> Result<Option<StoredJob>, Error> {
    let mut call = scripts::INSPECT.on(keys);
    let mut reply = call.arg(id).call(conn).await?;
    if reply.next::<String>()? != "found" {
        return Ok(None);
    }
    let state = reply.next::<String>()?.parse()?;
    let (attempt, stalled): (String, String) = (reply.next()?, reply.next()?);
    Ok(Some(StoredJob {
        state,
        failed_attempts: attempt.parse().unwrap_or(0),
        stalled_count: stalled.parse().unwrap_or(0),
        result: reply.next()?,
        error: reply.next()?,
    }))
}

/// How many jobs of a task wait, are delayed, running, completed, failed and cancelled, counted in one step.
pub(crate) async fn counts(conn: &mut impl Connection, keys: &TaskKeys) -> Result<[u64; 6], Error> {
    let mut reply = scripts::COUNTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    reply.rest()?.try_into().map_err(|counts| reply.unexpected(&format!("{counts:?}")))
}
