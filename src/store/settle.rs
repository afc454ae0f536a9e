//! `lua/settle.lua`: records outcomes and claims jobs, in one call.

use std::fmt::Write as _;
use std::time::Duration;

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use super::report::{Disposition, Report, words_of};
use super::reply::{Reply, Text};
use super::scripts;
use crate::error::Error;
use crate::job::deferred::Deferred;
use crate::job::outcome::StoredOutcome;
use crate::limits::{NARROW_BYTES, stored_number};
use crate::stall::recovery::Recovery;
use crate::times::to_ms;

/// How a worker's lines of settle calls are told apart, behind the number of a call and behind the worker in `calls`.
/// The last one is for large outcomes: nothing else waits behind them.
pub(crate) const LINES: [&str; 3] = ["", "/2", "/3"];

/// The line of calls whose outcomes are large: they travel alone, and nothing waits behind them.
pub(crate) const LARGE_LINE: usize = LINES.len() - 1;

/// The lines as logs name them.
pub(crate) const PARTS: [&str; LINES.len()] = ["settle", "settle/2", "settle/3"];

/// The input of a claimed job.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Here(Vec<u8>),
    /// Too large to come with others: its size, for [`payload`](super::values::payload).
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
    pub(crate) id: crate::job::id::JobId,
    pub(crate) fence: u64,
    pub(crate) payload: Payload,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    /// JSON of the overrides of its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) deferred: Deferred,
    /// How it was recovered last, if it was.
    pub(crate) recovery: Option<Recovery>,
    /// Whether it is running, and not claimed ahead.
    pub(crate) begins: bool,
    /// Whether it had a time until which to begin.
    pub(crate) expires: bool,
    /// Its outcome is stored: nothing but its hook runs. The payload is the value, or the error.
    pub(crate) outcome: Option<StoredOutcome>,
}

/// How many jobs a call is to claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Want {
    /// In all.
    pub(crate) jobs: usize,
    /// How many of them begin; the others are claimed ahead.
    pub(crate) begin: usize,
    /// How many of those begin at once, and not behind others; hooks do.
    pub(crate) at_once: usize,
    /// Whether hooks are wanted, too.
    pub(crate) hooks: bool,
    /// Whether the answer is to be small: most payloads are read apart.
    pub(crate) narrow: bool,
}

impl Want {
    /// Nothing.
    pub(crate) const NONE: Want = Want { jobs: 0, begin: 0, at_once: 0, hooks: false, narrow: false };

    fn to_arg(self) -> String {
        let Want { jobs, begin, at_once, hooks, narrow } = self;
        let numbers = if jobs == at_once { jobs.to_string() } else { format!("{jobs} {begin} {at_once}") };
        let numbers = if hooks { numbers + " hooks" } else { numbers };
        if narrow { format!("{numbers} most {NARROW_BYTES}") } else { numbers }
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
    /// Taken back: cancelled, expired before it began, or requeued since it may not begin before it has a slot.
    pub(crate) taken: Vec<u64>,
    pub(crate) claimed: Vec<Claimed>,
    /// The task is paused, and nothing that was to begin has begun, but for hooks.
    pub(crate) is_paused: bool,
    /// Hooks are due that nobody has taken.
    pub(crate) hooks_left: bool,
    /// No job may begin before it has a slot, says the task: one stall would end it.
    pub(crate) none_early: bool,
    pub(crate) next_due: Option<Duration>,
    /// Jobs that had no payload when they were to be claimed, and were removed.
    pub(crate) lost_payloads: Vec<crate::job::id::JobId>,
}

/// Reports outcomes and claims jobs. The number grows by one from call to call of a worker's line on a task
/// (see [`LINES`]); a call whose answer was lost is repeated with its number.
pub(crate) async fn settle(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (line, number): (usize, u64),
    ask: Duration,
    want: Want,
    reports: &[Report],
) -> Result<SettleReply, Error> {
    let completed = || {
        reports.iter().filter_map(|report| match &report.outcome {
            Disposition::Completed(value) => Some((report, value)),
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
    let begins = || reports.iter().filter(|report| matches!(report.outcome, Disposition::Begin { .. }));
    let at_once = reports.iter().filter(|report| matches!(report.outcome, Disposition::Begin { early: false })).count();
    let counts = match begins().count() {
        0 => values.to_string(),
        begin if begin == at_once => format!("{values} {begin}"),
        begin => format!("{values} {begin} {at_once}"),
    };
    call.arg(format!("{number}{}", LINES[line])).arg(worker).arg(to_ms(ask)).arg(want.to_arg());
    call.arg(how_many).arg(counts);
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
    begins().for_each(|report| {
        call.arg(report.id.as_str());
    });
    begins().for_each(|report| {
        call.arg(report.fence);
    });
    for report in reports {
        let (kind, attempt, detail, error) = match &report.outcome {
            Disposition::Completed(_) | Disposition::Begin { .. } => continue,
            Disposition::Failed { attempt, error } => {
                let detail = format!("{} {}", words_of(error), report.ran.as_micros());
                ("failed", attempt.to_string(), detail, error.to_json())
            }
            Disposition::Retry { attempt, delay, error } => {
                let detail = format!("{} {} {}", to_ms(*delay), words_of(error), report.ran.as_micros());
                ("retry", attempt.to_string(), detail, error.to_json())
            }
            Disposition::Snooze { deferred, delay } => {
                ("snooze", deferred.to_string(), to_ms(*delay).to_string(), String::new())
            }
            Disposition::Undecodable { deferred, delay, error } => {
                ("undecodable", deferred.to_string(), to_ms(*delay).to_string(), error.to_json())
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
            Disposition::Requeue => ("requeue", "0".to_owned(), String::new(), String::new()),
            Disposition::Unstart => ("unstart", "0".to_owned(), String::new(), String::new()),
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
    let (lost, taken) = (fences(&mut reply)?, fences(&mut reply)?);
    let first_fence: u64 = reply.next()?;
    let Text(ids) = reply.next()?;
    let payloads: Vec<redis::Value> = reply.next()?;
    let extras: Vec<Vec<redis::Value>> = reply.next()?;
    let next_due: String = reply.next()?;
    let begin: i64 = reply.next()?;
    let is_paused = begin < 0;
    let begin = usize::try_from(if is_paused { -1 - begin } else { begin }).unwrap_or(0);
    let more = reply.next::<Option<u8>>()?.unwrap_or(0);
    let (hooks_left, none_early) = (more & 1 > 0, more & 2 > 0);
    let without = reply.rest::<Text>()?;
    let lost_payloads = without.iter().map(|Text(id)| crate::job::id::JobId::from_wire(id.as_str())).collect();
    let mut claimed: Vec<Claimed> = ids
        .split_ascii_whitespace()
        .zip(payloads)
        .zip(first_fence..)
        .enumerate()
        .map(|(at, ((id, payload), fence))| Claimed {
            id: crate::job::id::JobId::from_wire(id),
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
            recovery: None,
            begins: at < begin,
            expires: false,
            outcome: None,
        })
        .collect();
    for row in extras {
        let mut words = row.into_iter();
        let position = words.next().and_then(|value| redis::from_redis_value::<usize>(value).ok()).unwrap_or(0);
        // What is not there is empty: the last one stands only where an outcome is stored.
        let mut word = || {
            let word = words.next().and_then(|value| redis::from_redis_value::<Text>(value).ok());
            word.map_or_else(String::new, |Text(word)| word)
        };
        if let Some(job) = position.checked_sub(1).and_then(|i| claimed.get_mut(i)) {
            // The script checked them when it claimed; in a repeated answer they are read anew.
            job.failed_attempts = word().parse().unwrap_or(0);
            job.stalled_count = word().parse().unwrap_or(0);
            job.overrides = word();
            job.dispatched_at_ms = stored_number(&word());
            job.deferred = Deferred::from_wire(&word());
            let recovery = word();
            job.expires = !word().is_empty();
            job.outcome = StoredOutcome::from_wire(&word());
            let stalled_count = job.outcome.map_or(job.stalled_count, |outcome| outcome.stalled_hooks);
            job.recovery = Recovery::from_wire(&recovery, stalled_count);
        }
    }
    // So a repeated answer names a job that was lost in the meantime.
    claimed.retain(|job| job.id.as_str() != "{}");
    let next_due = next_due.parse().ok().map(Duration::from_millis);
    Ok(SettleReply::Settled(Settled {
        lost,
        taken,
        claimed,
        is_paused,
        hooks_left,
        none_early,
        next_due,
        lost_payloads,
    }))
}

/// The jobs that a call of settle claimed, from its record: those that are not ours any more are among them. Empty if
/// the call was not executed yet.
pub(crate) async fn claimed_by(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (line, number): (usize, u64),
) -> Result<Vec<(crate::job::id::JobId, u64)>, Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(keys.get(Key::Calls)).arg(format!("{worker}{}", LINES[line]));
    let record: Option<Vec<u8>> = cmd.query_async(conn).await.map_err(|e| classify("calls", e))?;
    let record = String::from_utf8(record.unwrap_or_default()).unwrap_or_default();
    let rows: Vec<&str> = record.split('\n').collect();
    match rows[..] {
        [call, _, _, fence, _, ids] if call.parse() == Ok(number) => {
            let ids = ids.split_ascii_whitespace().map(crate::job::id::JobId::from_wire);
            Ok(ids.zip(stored_number(fence).unwrap_or(0)..).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The next word of the reply: fences with spaces between.
fn fences(reply: &mut Reply) -> Result<Vec<u64>, Error> {
    let words: String = reply.next()?;
    words.split_ascii_whitespace().map(|word| word.parse().map_err(|_| reply.unexpected(word))).collect()
}
