//! Records outcomes and claims jobs in one call (`lua/settle.lua`, `lua/settle_plain.lua` where that suffices, or
//! `lua/settle_keyed.lua` for jobs with keys).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Reply, Text};
use super::report::{Disposition, Report, add_reports};
use super::scripts::{self, Invocation};
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::outcome::StoredOutcome;
use crate::job::snooze::Snoozes;
use crate::limits::{NARROW_BYTES, stored_number};
use crate::stall::recovery::Recovery;
use crate::unix_time::to_ms;

/// The suffixes of a worker's call sequences: after the number of a call, and after the worker in `replies`. The driver has the
/// first three.
pub(crate) const SEQUENCES: [&str; 4] = ["", "/2", "/3", "/4"];

/// The call sequence for large outcomes, so that nothing else waits for them.
pub(crate) const LARGE_SEQUENCE: usize = 2;

/// The call sequence in which the keeper hands back jobs.
pub(crate) const KEEPER_SEQUENCE: usize = 3;

/// The call sequences as logs name them.
pub(crate) const PARTS: [&str; SEQUENCES.len()] = ["settle", "settle/2", "settle/3", "settle/4"];

/// The input of a claimed job.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Here(Vec<u8>),
    /// Its size. It is too large for the answer, and is read separately.
    Apart(usize),
}

impl Payload {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::Apart(bytes) => *bytes,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: JobId,
    pub(crate) fence: u64,
    pub(crate) payload: Payload,
    pub(crate) failed_attempts: u32,
    pub(crate) stalled_count: u32,
    /// JSON of the overrides of its dispatch; empty for none.
    pub(crate) overrides: String,
    pub(crate) dispatched_at_ms: Option<u64>,
    pub(crate) snoozes: Snoozes,
    /// How it was last recovered, if it was.
    pub(crate) recovery: Option<Recovery>,
    /// Whether it is running, not claimed ahead.
    pub(crate) begins: bool,
    /// Whether it had an expiry time.
    pub(crate) expires: bool,
    /// Its stored outcome. If it has one, only its hook runs, and the payload is the value or the error.
    pub(crate) outcome: Option<StoredOutcome>,
}

/// How many jobs a call should claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Want {
    /// In all.
    pub(crate) jobs: usize,
    /// How many of them begin; the others are claimed ahead.
    pub(crate) begin: usize,
    /// How many of those that begin have a free slot. Hooks use these first.
    pub(crate) with_slot: usize,
    /// Whether to claim hooks, too.
    pub(crate) hooks: bool,
    /// Whether the answer must be small: then most payloads are read separately.
    pub(crate) narrow: bool,
}

impl Want {
    pub(crate) const NONE: Want = Want { jobs: 0, begin: 0, with_slot: 0, hooks: false, narrow: false };

    /// The same, limited to this many jobs.
    pub(crate) fn at_most(self, jobs: usize) -> Want {
        let Want { begin, with_slot, .. } = self;
        Want { jobs: self.jobs.min(jobs), begin: begin.min(jobs), with_slot: with_slot.min(jobs), ..self }
    }

    /// Adds the arguments of `lua/settle.lua` from `want` to `most`.
    fn add_to(self, call: &mut Invocation) {
        let Want { jobs, begin, with_slot, hooks, narrow } = self;
        call.arg(jobs);
        if jobs == with_slot {
            call.arg("").arg("");
        } else {
            call.arg(begin).arg(with_slot);
        }
        call.arg(if hooks { "1" } else { "" });
        if narrow {
            call.arg(NARROW_BYTES);
        } else {
            call.arg("");
        }
    }
}

/// Whether a plain call goes to `settle_plain` first. Where that cannot answer, the call takes a second round trip. So the next
/// calls go to `settle` at once: 1, then twice as many each time, up to 64.
#[derive(Debug, Default)]
pub(crate) struct PlainFirst {
    /// How many calls still go to `settle` at once.
    skipped: AtomicU32,
    /// How many do after the next failure.
    pause: AtomicU32,
    /// Whether jobs of the task have keys: then all calls go to `settle_keyed`.
    keyed: AtomicBool,
}

impl PlainFirst {
    fn is_next(&self) -> bool {
        // Calls of two sequences may count one more or less; that does no harm.
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.skipped.store(skipped.saturating_sub(1), Ordering::Relaxed);
        skipped == 0
    }

    fn answered(&self, is_settled: bool) {
        let pause = if is_settled { 0 } else { (self.pause.load(Ordering::Relaxed) * 2).clamp(1, 64) };
        self.pause.store(pause, Ordering::Relaxed);
        self.skipped.store(pause, Ordering::Relaxed);
    }
}

/// A call of a worker. Each call in a sequence of the worker and task (see [`SEQUENCES`]) has the next number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettleCall<'a> {
    pub(crate) worker: &'a str,
    pub(crate) sequence: usize,
    pub(crate) number: u64,
    /// The worker's stall interval.
    pub(crate) ask: Duration,
    pub(crate) want: Want,
    pub(crate) reports: &'a [Report],
}

impl SettleCall<'_> {
    /// Whether `settle_plain` may answer.
    fn is_plain(&self) -> bool {
        let Want { jobs, hooks, narrow, .. } = self.want;
        // It answers only a call after another one.
        let has_work = self.number > 1 && (jobs > 0 || !self.reports.is_empty());
        let is_usual =
            |report: &Report| matches!(report.outcome, Disposition::Completed(_) | Disposition::Begin { .. });
        has_work && !hooks && !narrow && self.reports.iter().all(is_usual)
    }
}

/// The answer to a settle.
#[derive(Debug)]
pub(crate) enum SettleReply {
    Settled(Settled),
    /// A later call of the sequence was answered before.
    Stale,
    /// The worker has stopped, according to its presence.
    Closed,
    /// The server has lost the options of the task. Nothing was done.
    Undeclared,
}

#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) lost: Vec<u64>,
    /// Jobs that were cancelled, that expired before they began, or that were requeued because they may not begin
    /// before they have a slot.
    pub(crate) taken: Vec<u64>,
    pub(crate) claimed: Vec<Claimed>,
    /// The task is paused: only hooks have begun.
    pub(crate) is_paused: bool,
    pub(crate) hooks_left: bool,
    /// No job of the task may begin before it has a slot: one stall would end it.
    pub(crate) none_early: bool,
    pub(crate) next_due: Option<Duration>,
    /// Jobs that had no payload and were removed.
    pub(crate) lost_payloads: Vec<JobId>,
}

/// Reports outcomes and claims jobs. If its answer is lost, a call is repeated under the same number.
pub(crate) async fn settle(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    asked: SettleCall<'_>,
    plain_first: &PlainFirst,
) -> Result<SettleReply> {
    let is_keyed = plain_first.keyed.load(Ordering::Relaxed);
    if !is_keyed && asked.is_plain() && plain_first.is_next() {
        let settled = settle_plain(conn, keys, asked).await?;
        plain_first.answered(settled.is_some());
        if let Some(settled) = settled {
            return Ok(SettleReply::Settled(settled));
        }
    }
    let mut reply = settle_whole(conn, keys, asked, is_keyed).await?;
    let mut word: String = reply.next()?;
    if word == "keyed" {
        plain_first.keyed.store(true, Ordering::Relaxed);
        reply = settle_whole(conn, keys, asked, true).await?;
        word = reply.next()?;
    }
    match word.as_str() {
        "settled" => Ok(SettleReply::Settled(settled(reply)?)),
        "stale" => Ok(SettleReply::Stale),
        "closed" => Ok(SettleReply::Closed),
        "undeclared" => Ok(SettleReply::Undeclared),
        other => Err(reply.unexpected(other)),
    }
}

/// Calls `settle`, or its variant for a task whose jobs have keys.
async fn settle_whole(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    SettleCall { worker, sequence, number, ask, want, reports }: SettleCall<'_>,
    is_keyed: bool,
) -> Result<Reply> {
    let script = if is_keyed { &scripts::SETTLE_KEYED } else { &scripts::SETTLE };
    let mut call = script.on(keys);
    call.arg(number).arg(SEQUENCES[sequence]).arg(worker).arg(to_ms(ask));
    want.add_to(&mut call);
    add_reports(&mut call, reports);
    call.call(conn).await
}

/// The same for jobs that have completed, begin, or are claimed. `None` if the call needs `settle`; then nothing was done.
async fn settle_plain(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    SettleCall { worker, sequence, number, ask, want, reports }: SettleCall<'_>,
) -> Result<Option<Settled>> {
    let mut call = scripts::SETTLE_PLAIN.on(keys);
    call.arg(number).arg(format!("{}\n", number - 1)).arg(format!("{worker}{}", SEQUENCES[sequence])).arg(worker);
    call.arg(to_ms(ask)).arg(want.jobs);
    add_plain_reports(&mut call, worker, want, reports);
    let mut reply = call.call(conn).await?;
    match reply.next::<String>()?.as_str() {
        "full" => Ok(None),
        "settled" => {
            let first_fence: u64 = reply.next()?;
            let Text(ids) = reply.next()?;
            let mut claimed = claimed_jobs(&ids, reply.next()?, first_fence);
            let next_due: String = reply.next()?;
            let begun = reply.next::<Option<usize>>()?.unwrap_or(usize::MAX);
            claimed.iter_mut().skip(begun).for_each(|job| job.begins = false);
            let times: Option<Vec<Option<String>>> = reply.next()?;
            for (job, time) in claimed.iter_mut().zip(times.unwrap_or_default()) {
                job.dispatched_at_ms = time.as_deref().and_then(stored_number);
            }
            let next_due = next_due.parse().ok().map(Duration::from_millis);
            Ok(Some(Settled { claimed, next_due, ..Settled::default() }))
        }
        other => Err(reply.unexpected(other)),
    }
}

/// Adds the arguments of `lua/settle_plain.lua` from `begin` on, for jobs that completed or begin.
fn add_plain_reports(call: &mut Invocation, worker: &str, want: Want, reports: &[Report]) {
    let (begins, completed): (Vec<&Report>, Vec<&Report>) =
        reports.iter().partition(|report| matches!(report.outcome, Disposition::Begin { .. }));
    if want.jobs == want.with_slot && begins.is_empty() {
        call.arg("");
    } else {
        let slots =
            begins.iter().filter(|report| matches!(report.outcome, Disposition::Begin { early: false })).count();
        call.arg(format!("{} {} {} {slots}", want.begin, want.with_slot, begins.len()));
    }
    let ran: Vec<String> = completed.iter().map(|report| report.ran.as_micros().to_string()).collect();
    call.arg(completed.len()).arg(ran.join(" "));
    let all = || completed.iter().chain(&begins);
    call.args(all().map(|report| report.id.as_str())).args(all().map(|report| format!("{worker}:{}", report.fence)));
    call.args((1..).zip(&completed).filter_map(|(at, report): (usize, _)| match &report.outcome {
        Disposition::Completed(Some(value)) => Some((at, value)),
        _ => None,
    }));
}

fn settled(mut reply: Reply) -> Result<Settled> {
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
    let lost_payloads = reply.texts()?.into_iter().map(JobId::from_wire).collect();
    let mut claimed = claimed_jobs(&ids, payloads, first_fence);
    claimed.iter_mut().skip(begin).for_each(|job| job.begins = false);
    for row in extras {
        add_extras(&mut claimed, row);
    }
    // In a repeated answer, this is the id of a job that was lost since.
    claimed.retain(|job| job.id.as_str() != "{}");
    let next_due = next_due.parse().ok().map(Duration::from_millis);
    Ok(Settled { lost, taken, claimed, is_paused, hooks_left, none_early, next_due, lost_payloads })
}

/// These jobs, as if all of them began.
fn claimed_jobs(ids: &str, payloads: Vec<redis::Value>, first_fence: u64) -> Vec<Claimed> {
    let jobs = ids.split_ascii_whitespace().zip(payloads).zip(first_fence..);
    jobs.map(|((id, payload), fence)| claimed_job(id, payload, fence)).collect()
}

fn claimed_job(id: &str, payload: redis::Value, fence: u64) -> Claimed {
    Claimed {
        id: JobId::from_wire(id),
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
        snoozes: Snoozes::default(),
        recovery: None,
        begins: true,
        expires: false,
        outcome: None,
    }
}

/// Sets the values of one job that differ from the defaults. The row has the job's position, then words; missing words at the end are empty.
fn add_extras(claimed: &mut [Claimed], row: Vec<redis::Value>) {
    let mut words = row.into_iter();
    let position = words.next().and_then(|value| redis::from_redis_value::<usize>(value).ok()).unwrap_or(0);
    let mut word = || {
        let word = words.next().and_then(|value| redis::from_redis_value::<Text>(value).ok());
        word.map_or_else(String::new, |Text(word)| word)
    };
    if let Some(job) = position.checked_sub(1).and_then(|i| claimed.get_mut(i)) {
        // The script checked the counters when it claimed. For a repeated answer it reads them again.
        job.failed_attempts = word().parse().unwrap_or(0);
        job.stalled_count = word().parse().unwrap_or(0);
        job.overrides = word();
        job.dispatched_at_ms = stored_number(&word());
        job.snoozes = Snoozes::from_wire(&word());
        let recovery = word();
        job.expires = !word().is_empty();
        job.outcome = StoredOutcome::from_wire(&word());
        let stalled_count = job.outcome.map_or(job.stalled_count, |outcome| outcome.stalled_hooks);
        job.recovery = Recovery::from_wire(&recovery, stalled_count);
    }
}

/// The jobs that a settle call claimed, according to its record, including those that the worker has lost since. Empty
/// if the call was not executed yet.
pub(crate) async fn claimed_by(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    (sequence, number): (usize, u64),
) -> Result<Vec<(JobId, u64)>> {
    let field = format!("{worker}{}", SEQUENCES[sequence]);
    let record: Option<Vec<u8>> =
        redis::cmd("HGET").arg(keys.get(Key::Replies)).arg(field).call(conn, "replies").await?;
    let record = String::from_utf8(record.unwrap_or_default()).unwrap_or_default();
    let rows: Vec<&str> = record.split('\n').collect();
    match rows[..] {
        [call, _, _, fence, _, ids] if call.parse() == Ok(number) => {
            let ids = ids.split_ascii_whitespace().map(JobId::from_wire);
            Ok(ids.zip(stored_number(fence).unwrap_or(0)..).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The next word of the reply: fences with spaces between.
fn fences(reply: &mut Reply) -> Result<Vec<u64>> {
    let words: String = reply.next()?;
    words.split_ascii_whitespace().map(|word| word.parse().map_err(|_| reply.unexpected(word))).collect()
}
