//! A worker that holds jobs and is not live, and who recovers them.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::describe::proof as proof_text;
use super::super::text::{quoted, span};
use crate::runtime::death_proof::DeathProof;
use crate::unix_time::as_ms;
use crate::worker_id::WorkerId;

/// A worker that holds jobs and is not live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostHolder {
    /// The worker.
    pub worker: WorkerId,
    /// Whether anything is known of it.
    pub is_known: bool,
    /// Its host; may be empty.
    pub host: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Whether it is in a container, where its process has another id than on the host.
    pub is_contained: bool,
    /// What proves its death.
    pub death: Option<DeathProof>,
    /// Whether it stopped.
    pub has_stopped: bool,
    /// How long ago it was seen.
    #[serde(rename = "seen_ago_ms", serialize_with = "as_ms")]
    pub seen_ago: Duration,
}

/// Who recovers the jobs of a lost worker, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rescue {
    /// Who does.
    pub by: Rescuer,
    /// Whether jobs of some phases wait for a person.
    pub partly_by_person: bool,
    /// How long it takes at most: two intervals.
    #[serde(rename = "within_ms", serialize_with = "as_ms")]
    pub within: Duration,
    /// The worker that asked for an interval longer than the default.
    pub asker: Option<WorkerId>,
}

/// Who recovers the jobs of a lost worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rescuer {
    /// A person, as the options say.
    Person,
    /// The next worker to start: no live one has the task.
    NextWorker,
    /// The live workers of the task.
    LiveWorkers,
    /// The same, and they are late.
    LateWorkers,
}

impl fmt::Display for LostHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = span(self.seen_ago);
        write!(f, "{}", self.worker)?;
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        match self.death {
            _ if !self.is_known => f.write_str(", about which nothing is known"),
            Some(proof) => write!(f, ", which is dead ({}), last seen {seen} ago", proof_text(proof)),
            None if self.has_stopped => write!(f, ", which stopped {seen} ago"),
            None => write!(f, ", last seen {seen} ago: it is dead, frozen, or cut off from Redis"),
        }
    }
}

/// Who recovers the jobs of a lost worker, and what a person can do.
pub(super) fn rescue_hint(task: &str, holder: &LostHolder, rescue: &Rescue) -> String {
    let at_once = || {
        let doubt = if holder.death.is_some() { "" } else { ", if it is dead," };
        let id = quoted(holder.worker.as_str());
        let mut hint =
            format!("`heartline recover worker {id}`{doubt} does it at once, and fails jobs that reached max_stalls");
        let pid = holder.pid.filter(|_| holder.death.is_none() && !holder.has_stopped && !holder.host.is_empty());
        if let Some(pid) = pid {
            let place = if holder.is_contained { "inside its container on" } else { "on" };
            hint += &format!(
                "; {place} {}, `ps -o stat= -p {pid}` shows whether it is frozen (T; `kill -CONT {pid}` resumes it) or dead (nothing)",
                holder.host
            );
        }
        if rescue.partly_by_person {
            hint += &format!("; jobs that wait for a person are in `heartline recover silent -t {task}`");
        }
        hint
    };
    let within = || {
        let whose =
            rescue.asker.as_ref().map_or_else(String::new, |asker| format!(" (two stall intervals, set by {asker})"));
        format!("within about {}{whose}", span(rescue.within))
    };
    match rescue.by {
        Rescuer::Person => {
            format!(
                "they wait for a person: `heartline recover silent -t {task}`, then `recover running` or `recover fail`"
            )
        }
        Rescuer::NextWorker => {
            format!("no live worker can recover them: start one, which does so {}; {}", within(), at_once())
        }
        Rescuer::LateWorkers => format!(
            "live workers should have recovered them by now: `heartline stalls outlook -t {task}` says why not; {}",
            at_once()
        ),
        Rescuer::LiveWorkers => format!("live workers recover them {}; {}", within(), at_once()),
    }
}
