//! Describes tasks: their workers, options and stall detection.

use std::time::{Duration, SystemTime};

use super::super::limits::{self, LimitReached};
use super::super::tasks::{PartitionReport, TaskReport};
use super::super::text::{exact, shown, span};
use crate::options::validate::task_name;

/// Whether by now every live worker should have sent a heartbeat since the last snapshot.
#[must_use]
pub fn is_overdue(task: &TaskReport) -> bool {
    task.parts.iter().filter_map(|part| part.heard_by()).all(|by| by < task.as_of)
}

/// How many held jobs of a partition got a heartbeat since the last snapshot.
#[must_use]
pub fn heard(part: &PartitionReport, now: SystemTime) -> String {
    if part.snapshot_at.is_none() {
        return format!("{} held; not checked yet: there was no snapshot", part.heard + part.candidates);
    }
    let rest = if part.heard_by().is_some_and(|by| now <= by) { "not due yet" } else { "silent" };
    format!("{} with a heartbeat since the snapshot, {} {rest}", part.heard, part.candidates)
}

/// Why jobs of a task wait although a worker is idle, if a limit is the reason.
#[must_use]
pub fn limit(limit: Option<LimitReached>, now: SystemTime) -> Option<String> {
    Some(match limit? {
        LimitReached::MaxRunning => "as many jobs run as max_running allows".to_owned(),
        LimitReached::Resting { until } => format!("the task rests until {}", exact(until, now)),
        LimitReached::KeyFull { .. } | LimitReached::KeyPaused { .. } | LimitReached::KeyResting { .. } => return None,
    })
}

/// The limit that keeps jobs of a task waiting, in words.
#[must_use]
pub fn task_limit(task: &TaskReport) -> Option<String> {
    let reached: Vec<&PartitionReport> = task.parts.iter().filter(|part| part.limit.is_some()).collect();
    let words = limit(reached.first()?.limit, task.as_of)?;
    let parts = task.parts.len();
    Some(if parts > 1 { format!("{words} ({} of {parts} partitions)", reached.len()) } else { words })
}

/// How many live workers a task has, followed by `?` if there may be others.
#[must_use]
pub fn live_workers(task: &TaskReport) -> String {
    format!("{}{}", task.live_workers, if task.knows_workers { "" } else { "?" })
}

/// The options of a task that are set, each with its name.
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
        is_declared.then(|| if limits.is_empty() { "forever".to_owned() } else { limits.join(", ") })
    };
    let grace = option("grace").map(|grace| {
        let phases = ["claimed", "running", "finalizing"].iter().zip(grace.split(' '));
        let waits = phases.filter_map(|(phase, wait)| match wait {
            "0" => None,
            "off" => Some(format!("silent {phase} jobs wait for a person")),
            ms => Some(format!(
                "silent {phase} jobs are recovered after {}",
                span(Duration::from_millis(ms.parse().ok()?))
            )),
        });
        waits.collect::<Vec<_>>().join("; ")
    });
    let limits = option("limits").and_then(|limits| limits::words(limits, task.parts.len() as u64));
    let (max_running, rate) = limits.unwrap_or_default();
    let (running_of_key, rate_of_key) =
        option("perKey").and_then(|limits| limits::words(limits, 1)).unwrap_or_default();
    let facts = [
        ("concurrency", text("concurrency")),
        ("prefetch", text("prefetch").filter(|count| count != "0")),
        ("max running", max_running),
        ("rate", rate),
        ("key", text("key")),
        ("running per key", running_of_key),
        ("rate per key", rate_of_key),
        ("attempts", text("attempts")),
        ("timeout", time("timeoutMs")),
        ("max stalls", text("maxCount")),
        ("on crash", text("onCrash")),
        ("recovery", grace.filter(|grace| !grace.is_empty())),
        ("heartbeats", text("heartbeat")),
        ("events", text("eventMode")),
        ("priority", option("priority").and_then(|words| words.split(' ').next()).map(str::to_owned)),
        ("hook", (option("hook") == Some("1")).then(|| "on_complete runs before a job ends".to_owned())),
        ("keep completed", kept("Completed")),
        ("keep failed", kept("Failed")),
        ("keep cancelled", kept("Cancelled")),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect()
}

/// Whether this is a valid task name, which needs no quotes in a command.
#[must_use]
pub fn is_task_name(name: &str) -> bool {
    task_name(name).is_ok()
}
