//! Describes workers: their facts, state, heartbeats and watches.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::super::text::{exact, relative, shown, span};
use super::super::workers::{DetectorReport, WorkerReport, WorkerState};
use crate::runtime::death_proof::DeathProof;
use crate::unix_time::ms_of;

/// The facts of a worker, each with its name.
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
        ("quiet since", worker.quiet.as_ref().map(|quiet| format!("{}, by {}", exact(quiet.at, now), quiet.by))),
        ("dead since", time(worker.death.as_ref().map(|death| death.at))),
        ("runtime", worker.runtime_blocked.map(|blocked| format!("blocked by handlers for {}", span(blocked)))),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, shown(&fact?)))).collect()
}

/// The state of a worker, with the proof if it is dead.
#[must_use]
pub fn worker_state(worker: &WorkerReport) -> String {
    match &worker.death {
        Some(death) if death.by.is_empty() => format!("{}: {}", worker.state, proof(death.proof)),
        Some(death) if death.proof == DeathProof::SaidSo => {
            format!("{}: reported by {}", worker.state, shown(&death.by))
        }
        Some(death) => format!("{}: {}, reported by {}", worker.state, proof(death.proof), shown(&death.by)),
        None if worker.stopped_at.is_some() => format!("{}: stopped", worker.state),
        // It may have stopped.
        None if worker.is_unreachable && !worker.state.is_live() => "unknown: its node does not answer".to_owned(),
        None => worker.state.to_string(),
    }
}

/// What proves that a worker is dead.
#[must_use]
pub fn proof(proof: DeathProof) -> &'static str {
    match proof {
        DeathProof::Gone => "its process is gone",
        DeathProof::PidReused => "its process is gone, and its pid is reused",
        DeathProof::Unreaped => "its process has ended",
        DeathProof::Replaced => "another worker took its exclusive name",
        DeathProof::SaidSo => "a person reported it",
    }
}

/// The heartbeats of a worker for a task.
#[derive(Clone, Debug, Serialize)]
pub struct Beat {
    /// The worker.
    pub worker: String,
    /// The task.
    pub task: String,
    /// The jobs that it holds.
    pub held: u64,
    /// Its slots.
    pub slots: u64,
    /// When the last answered heartbeat was sent, for people.
    #[serde(skip)]
    pub answered: String,
    /// The same, ms since 1970.
    pub last_beat_at_ms: Option<u64>,
    /// How long the answer took, for people.
    #[serde(skip)]
    pub took: String,
    /// The same, ms.
    pub beat_took_ms: Option<u64>,
    /// When its jobs may be found stalled without another heartbeat, for people.
    #[serde(skip)]
    pub deadline: String,
    /// The same, ms since 1970; `None` if it holds nothing.
    pub deadline_at_ms: Option<u64>,
    /// Whether two thirds of the interval have passed since the last heartbeat.
    pub is_at_risk: bool,
    /// The verdict in a word.
    pub verdict: &'static str,
}

/// A worker updates its presence every 5 s. After this long, the update is late.
const LATEST_UPDATE: Duration = Duration::from_secs(7);

/// The heartbeats of all workers that are not gone, those at risk first.
#[must_use]
pub fn beats<'a>(workers: impl IntoIterator<Item = &'a WorkerReport>, now: SystemTime) -> Vec<Beat> {
    let mut beats = Vec::new();
    for worker in workers.into_iter().filter(|worker| worker.state != WorkerState::Gone) {
        let report_age = now.duration_since(worker.last_seen_at).unwrap_or_default();
        // The figures of a live worker are up to 5 s old. Older ones say nothing about its heartbeats.
        let is_current = report_age < LATEST_UPDATE;
        let as_of = if is_current { worker.last_seen_at } else { now };
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
                    (_, false) if is_current => "safe",
                    (_, false) => "unknown",
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

/// The latest break among the watches of a worker.
fn last_break(worker: &WorkerReport) -> Option<(&DetectorReport, String, SystemTime)> {
    let watches = worker.tasks.iter().flat_map(|its| &its.watches);
    let broken = watches.filter_map(|watch| Some((watch, watch.broken?.to_string(), watch.broken_at?)));
    broken.max_by_key(|(_, _, at)| *at)
}

/// Whether the watch of a live worker broke so recently that it cannot recover jobs yet.
#[must_use]
pub fn is_watch_broken(worker: &WorkerReport, now: SystemTime) -> bool {
    worker.state.is_live() && last_break(worker).is_some_and(|(watch, ..)| !is_whole(watch, now))
}

/// The state of a worker's watches in a word.
#[must_use]
pub fn watch_word(worker: &WorkerReport, now: SystemTime) -> String {
    let Some((watch, cause, at)) = last_break(worker) else { return "ok".to_owned() };
    let at = relative(at, now);
    if is_whole(watch, now) { format!("ok ({cause} {at})") } else { format!("broken {at}: {cause}") }
}

/// Whether a whole interval has passed since the watch last broke.
fn is_whole(watch: &DetectorReport, now: SystemTime) -> bool {
    watch.broken_at.is_none_or(|at| now.duration_since(at).unwrap_or_default() >= watch.interval)
}

/// The watches of a worker, one line each.
#[must_use]
pub fn watches(worker: &WorkerReport, now: SystemTime) -> Vec<String> {
    let watch = |(task, watch): (&String, &DetectorReport)| {
        let broken = watch.broken.zip(watch.broken_at);
        let whole = if is_whole(watch, now) { ", and whole again since" } else { "" };
        let broken = broken.map(|(cause, at)| format!("; broken {}: {cause}{whole}", relative(at, now)));
        let since = relative(watch.since, now);
        let may = watch.may_resolve_at();
        let may = if may <= now { "now".to_owned() } else { relative(may, now) };
        let interval = span(watch.interval);
        let line = format!(
            "{task}: epoch {} since {since}, interval {interval}; may resolve {may}{}",
            watch.epoch,
            broken.unwrap_or_default()
        );
        shown(&line)
    };
    let watched = worker.tasks.iter().flat_map(|its| its.watches.iter().map(|watch| (&its.task, watch)));
    watched.map(watch).collect()
}
