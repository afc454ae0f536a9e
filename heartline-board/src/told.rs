//! Jobs and workers, and what has happened to them, in words: the same on a page and in a terminal.

use std::time::{Duration, SystemTime};

use heartline::{
    ActReport, DeathProof, Fault, Finding, JobReport, JobRow, JobState, PartReport, TaskReport, WatchReport,
    WorkerReport, WorkerState,
};
use serde::Serialize;
use serde_json::Value;

use crate::text::{brief, exact, many, relative, shown, span};

/// What `heartline work` notes of a job whose program it cannot start.
pub const NOT_STARTED_AT_ALL: &str = "the program cannot be started";

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
    let recovery = job.recovery.as_ref().map(|recovery| {
        let of = recovery.worker.as_ref().map_or_else(String::new, |worker| format!(" from {worker}"));
        format!("{}{of}, {}", recovery.reason, exact(recovery.at, now))
    });
    let facts = [
        ("state", Some(job.state.to_string())),
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

/// How many jobs an act changed, and what became of them.
#[must_use]
pub fn changed(report: &ActReport, done: &str) -> String {
    let changed = report.done - report.cancelled_instead;
    match report.cancelled_instead {
        0 => format!("{changed} {done}"),
        cancelled => format!("{changed} {done}, {cancelled} cancelled, as was asked for before"),
    }
}

/// Whether a held job that was silent at the snapshot ought to have been heard from since: in the first third of each interval none is.
#[must_use]
pub fn is_overdue(task: &TaskReport) -> bool {
    task.parts.iter().filter_map(|part| part.heard_by()).all(|by| by < task.as_of)
}

/// How many held jobs were heard from since the snapshot of a part, and how many were not: behind a snapshot none need be yet.
#[must_use]
pub fn heard(part: &PartReport, now: SystemTime) -> String {
    if part.snapshot_at.is_none() {
        return format!("{} held; none was looked at yet: there was no snapshot", part.heard + part.candidates);
    }
    let rest = if part.heard_by().is_some_and(|by| now <= by) { "need not be yet" } else { "silent" };
    format!("{} heard from since the snapshot, {} {rest}", part.heard, part.candidates)
}

/// Why jobs failed: a code, how many of the jobs that were looked at have it, and the last of them.
#[derive(Clone, Debug, Serialize)]
pub struct CodeCount {
    /// The code.
    pub code: String,
    /// How many jobs have it.
    pub jobs: u64,
    /// When the last of them ended.
    #[serde(skip)]
    pub last_at: Option<SystemTime>,
    /// Which one that is.
    pub last_id: String,
    /// The beginning of its message.
    pub last_message: String,
}

/// The codes of failed jobs, the most frequent first. The jobs come as lists have them, the latest first.
#[must_use]
pub fn codes(jobs: &[JobRow]) -> Vec<CodeCount> {
    let mut found: Vec<CodeCount> = Vec::new();
    for job in jobs {
        let code = job.code.as_deref().unwrap_or_default();
        match found.iter_mut().find(|count| count.code == code) {
            Some(count) => count.jobs += 1,
            None => found.push(CodeCount {
                code: code.to_owned(),
                jobs: 1,
                last_at: job.since,
                last_id: job.id.to_string(),
                last_message: job.message.clone().unwrap_or_default(),
            }),
        }
    }
    found.sort_by_key(|count| std::cmp::Reverse(count.jobs));
    found
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

/// How many jobs run again by a repair of these, and how many are removed, to stand in a question; empty for none.
#[must_use]
pub fn runs_again<'a>(found: impl Iterator<Item = &'a Finding>) -> String {
    let (mut again, mut removed) = (0, 0);
    for finding in found {
        again += usize::from(finding.fault == Fault::Nowhere);
        removed += usize::from(finding.fault == Fault::NoPayload);
    }
    let removed = match removed {
        0 => String::new(),
        jobs => format!("; {} REMOVED by that", many(jobs as u64, "job")),
    };
    let again = match again {
        0 => String::new(),
        1 => "; 1 job RUNS AGAIN by that, also if it had ended and its end is lost".to_owned(),
        jobs => format!("; {jobs} jobs RUN AGAIN by that, also those that had ended and whose end is lost"),
    };
    removed + &again
}

/// What a fault of an audit means, and what mending it does.
#[must_use]
pub fn meaning(fault: Fault) -> &'static str {
    match fault {
        Fault::NoPayload => "its input is lost, and it can never run; mended, what is left of it is REMOVED",
        Fault::TwoPlaces => "it is in more than one place; mended, it stays in one",
        Fault::Nowhere => "it is in no place, and its end, if it had one, is lost; mended, it RUNS AGAIN at once",
        Fault::EndedNowhere => {
            "it has ended, and its place is lost; mended, it is where it was, as if it had ended some minutes ago"
        }
        Fault::Unlocked => "it is among the running ones, and nobody holds it; mended, it leaves them",
        Fault::Unwatched => "it is held, and no sweep looks at it; mended, the next one does",
        Fault::BothSets => "it counts as silent and as heard from; mended, as heard from",
        Fault::StrayCancel => "its cancel is asked for, and nobody holds it; mended, that is dropped",
        Fault::StrayClaim | Fault::StrayHook => "a mark of it is left over, or missing; mended, it fits",
        Fault::BadCounter | Fault::BadMeta => {
            "a counter cannot be read as a number, or is too large; mended, it counts from 0"
        }
        Fault::Miscounted => "entries of lists are counted wrong; mended, they are right",
        Fault::StaleRecord => "the record of a worker that is gone; mended, it is removed",
        _ => "see the guide",
    }
}

/// What is known of a worker, each fact with its name.
#[must_use]
pub fn worker_facts(worker: &WorkerReport, now: SystemTime) -> Vec<(&'static str, String)> {
    let time = |at: Option<SystemTime>| at.map(|at| exact(at, now));
    let facts = [
        ("worker", Some(worker.worker.to_string())),
        ("state", Some(worker_state(worker))),
        ("name", worker.name.clone()),
        ("host", Some(worker.host.clone())),
        ("pid", worker.pid.map(|pid| pid.to_string())),
        ("version", Some(worker.version.clone())),
        ("started", time(worker.started_at)),
        ("last seen", time(Some(worker.last_seen_at))),
        ("stopped", time(worker.stopped_at)),
        ("dead since", time(worker.death.as_ref().map(|death| death.at))),
        ("runtime", worker.runtime_blocked.map(|blocked| format!("blocked by handlers for {}", span(blocked)))),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, shown(&fact?)))).collect()
}

/// The state, and of one that is dead by what that is known.
#[must_use]
pub fn worker_state(worker: &WorkerReport) -> String {
    match &worker.death {
        Some(death) if death.by.is_empty() => format!("{}: {}", worker.state, proof(death.proof)),
        Some(death) if death.proof == DeathProof::SaidSo => format!("{}: {} said so", worker.state, shown(&death.by)),
        Some(death) => format!("{}: {}, says {}", worker.state, proof(death.proof), shown(&death.by)),
        None if worker.stopped_at.is_some() => format!("{}: it said that it stopped", worker.state),
        // It may have said that it stopped.
        None if worker.is_away && !worker.state.is_live() => "not known: its node is away".to_owned(),
        None => worker.state.to_string(),
    }
}

/// How many live workers a task has; `?` behind those that are known where others may be live.
#[must_use]
pub fn live_workers(task: &TaskReport) -> String {
    format!("{}{}", task.live_workers, if task.knows_workers { "" } else { "?" })
}

/// What proves that a worker is dead.
#[must_use]
pub fn proof(proof: DeathProof) -> &'static str {
    match proof {
        DeathProof::Gone => "its process is gone",
        DeathProof::PidReused => "its process is gone, another one has its pid",
        DeathProof::Unreaped => "its process has ended",
        DeathProof::Replaced => "another worker has its exclusive name",
        DeathProof::SaidSo => "a person said so",
        _ => "it is proven",
    }
}

/// The heartbeats of a worker for a task.
#[derive(Clone, Debug, Serialize)]
pub struct Beat {
    /// The worker.
    pub worker: String,
    /// The task.
    pub task: String,
    /// How many jobs it holds.
    pub held: u64,
    /// How many it may hold.
    pub slots: u64,
    /// When the heartbeat was sent that was answered last, for people.
    #[serde(skip)]
    pub answered: String,
    /// The same, ms since 1970.
    pub last_beat_at_ms: Option<u64>,
    /// How long the answer took, for people.
    #[serde(skip)]
    pub took: String,
    /// The same, ms.
    pub beat_took_ms: Option<u64>,
    /// When its jobs may be found stalled, if no other heartbeat is answered, for people.
    #[serde(skip)]
    pub deadline: String,
    /// The same, ms since 1970; `None` of one that holds nothing.
    pub deadline_at_ms: Option<u64>,
    /// Whether two thirds of the interval were over when the worker told of itself last, or, of a silent one, are now.
    pub is_at_risk: bool,
    /// That in a word.
    pub verdict: &'static str,
}

/// A worker tells of itself each 5 s: behind this much it is late.
const LATEST_WORD: Duration = Duration::from_secs(7);

fn ms_of(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The heartbeats of workers that are not gone, those that hold jobs and are at risk first.
#[must_use]
pub fn beats<'a>(workers: impl IntoIterator<Item = &'a WorkerReport>, now: SystemTime) -> Vec<Beat> {
    let mut beats = Vec::new();
    for worker in workers.into_iter().filter(|worker| worker.state != WorkerState::Gone) {
        let told = now.duration_since(worker.last_seen_at).unwrap_or_default();
        // What a live one told, it told up to 5 s ago; behind that nobody knows whether it beats.
        let is_told = told < LATEST_WORD;
        let as_of = if is_told { worker.last_seen_at } else { now };
        for its in &worker.tasks {
            let interval = its.watches.iter().map(|watch| watch.interval).max();
            let age = its.last_beat_at.and_then(|at| as_of.duration_since(at).ok());
            let is_late = age.zip(interval).is_some_and(|(age, interval)| age > interval * 2 / 3);
            let is_at_risk = is_late && its.held > 0;
            let deadline = its.last_beat_at.zip(interval).and_then(|(at, interval)| at.checked_add(interval));
            beats.push(Beat {
                worker: worker.worker.to_string(),
                task: its.task.clone(),
                held: its.held,
                slots: its.slots,
                answered: its.last_beat_at.map_or("never".to_owned(), |at| {
                    format!("{} ago", span(as_of.duration_since(at).unwrap_or_default()))
                }),
                last_beat_at_ms: its.last_beat_at.map(ms_of),
                took: if its.beat_took.is_zero() { "–".to_owned() } else { span(its.beat_took) },
                beat_took_ms: (!its.beat_took.is_zero()).then_some(its.beat_took.as_millis() as u64),
                deadline_at_ms: deadline.filter(|_| its.held > 0).map(ms_of),
                deadline: match deadline {
                    _ if its.held == 0 => "–".to_owned(),
                    None => "–".to_owned(),
                    Some(at) if at <= as_of => "any time now".to_owned(),
                    Some(at) => relative(at, as_of),
                },
                is_at_risk,
                verdict: match (its.held, is_late) {
                    (0, _) => "holds nothing",
                    (_, true) => "at risk",
                    (_, false) if is_told => "safe",
                    (_, false) => "not heard from",
                },
            });
        }
    }
    beats.sort_by(|one, other| {
        let rank = |beat: &Beat| (!beat.is_at_risk, beat.held == 0);
        rank(one).cmp(&rank(other)).then_with(|| (&one.worker, &one.task).cmp(&(&other.worker, &other.task)))
    });
    beats
}

/// What the options of a task say, for people: a name and what it is, of those that say something.
#[must_use]
pub fn options(task: &TaskReport) -> Vec<(&'static str, String)> {
    let option = |name: &str| task.options.values.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let time = |name: &str| Some(span(Duration::from_millis(option(name)?.parse().ok()?)));
    let text = |name: &str| option(name).map(shown);
    let kept = |place: &str| {
        if option(&format!("keep{place}")) == Some("0") {
            return Some("not at all".to_owned());
        }
        let age = time(&format!("maxAge{place}")).map(|age| format!("for {age}"));
        let count = option(&format!("maxCount{place}")).map(|count| format!("the last {}", shown(count)));
        let limits: Vec<String> = age.into_iter().chain(count).collect();
        let is_declared = task.options.declared_by.is_some();
        is_declared.then(|| if limits.is_empty() { "for ever".to_owned() } else { limits.join(", ") })
    };
    let patience = option("patience").map(|patience| {
        let phases = ["claimed", "running", "finalizing"].iter().zip(patience.split(' '));
        let waits = phases.filter_map(|(phase, wait)| match wait {
            "0" => None,
            "off" => Some(format!("silent {phase} jobs wait for a person")),
            ms => Some(format!("silent {phase} jobs are let be for {}", span(Duration::from_millis(ms.parse().ok()?)))),
        });
        waits.collect::<Vec<_>>().join("; ")
    });
    let facts = [
        ("runs a worker has at a time", text("concurrency")),
        ("claimed ahead", text("prefetch").filter(|count| count != "0")),
        ("runs of a job", text("attempts")),
        ("time of a run", time("timeoutMs")),
        ("stalls of a job", text("maxCount")),
        ("behind a crash", text("onCrash")),
        ("patience", patience.filter(|patience| !patience.is_empty())),
        ("heartbeats", text("heartbeat")),
        ("events", text("eventMode")),
        ("priority", text("priority")),
        ("hook", (option("hook") == Some("1")).then(|| "runs before a job ends".to_owned())),
        ("completed are kept", kept("Completed")),
        ("failed are kept", kept("Failed")),
        ("cancelled are kept", kept("Cancelled")),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect()
}

/// What a watch says of itself in a word: what broke it last is of account until a whole interval has passed.
#[must_use]
pub fn watch_word(worker: &WorkerReport, now: SystemTime) -> String {
    let watches = || worker.tasks.iter().flat_map(|its| &its.watches);
    let broken = watches().filter_map(|watch| Some((watch.broken?, watch.broken_at?, watch)));
    let Some((cause, at, watch)) = broken.max_by_key(|(_, at, _)| *at) else { return "ok".to_owned() };
    let at = relative(at, now);
    if is_whole(watch, now) { format!("ok ({cause} {at})") } else { format!("broken {at}: {cause}") }
}

/// Whether a whole interval has passed behind the last break.
fn is_whole(watch: &WatchReport, now: SystemTime) -> bool {
    watch.broken_at.is_none_or(|at| now.duration_since(at).unwrap_or_default() >= watch.interval)
}

/// The watches of a worker, a sentence each.
#[must_use]
pub fn watches(worker: &WorkerReport, now: SystemTime) -> Vec<String> {
    let watch = |(task, watch): (&String, &WatchReport)| {
        let broken = watch.broken.zip(watch.broken_at);
        let whole = if is_whole(watch, now) { ", and whole again since" } else { "" };
        let broken = broken.map(|(cause, at)| format!("; broken {}: {cause}{whole}", relative(at, now)));
        let since = relative(watch.since, now);
        let may = watch.may_resolve_at();
        let may = if may <= now { "now".to_owned() } else { relative(may, now) };
        let interval = span(watch.interval);
        let told = format!(
            "{task}: epoch {} since {since}, interval {interval}; may resolve {may}{}",
            watch.epoch,
            broken.unwrap_or_default()
        );
        shown(&told)
    };
    let watched = worker.tasks.iter().flat_map(|its| its.watches.iter().map(|watch| (&its.task, watch)));
    watched.map(watch).collect()
}
