//! A worker that is not live, and who recovers its jobs; and the slots held by runs that lost their jobs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::describe::proof as proof_text;
use super::super::text::{quoted, span};
use crate::runtime::death_proof::DeathProof;
use crate::worker_id::WorkerId;

/// A worker that is not live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostHolder {
    /// The worker.
    pub worker: WorkerId,
    /// Whether its presence was found.
    pub is_known: bool,
    /// Its host; may be empty.
    pub host: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Whether it is in a container, where its process has another id than on the host.
    pub is_contained: bool,
    /// The proof of its death, if any.
    pub death: Option<DeathProof>,
    /// Whether it stopped.
    pub has_stopped: bool,
    /// How many ms ago it was seen.
    pub seen_ago_ms: u64,
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
}

/// The slots of a worker that are held by runs that lost their jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostSlots {
    /// The worker.
    pub worker: WorkerId,
    /// How many slots.
    pub slots: u64,
}

impl fmt::Display for LostHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = span(Duration::from_millis(self.seen_ago_ms));
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

impl LostHolder {
    /// The hint: who recovers its jobs, and within which time, and what a person can do.
    pub(super) fn hint(&self, task: &str, more: u64, rescuer: Rescuer, within_ms: u64) -> String {
        let (at_once, within) = (self.at_once(more), span(Duration::from_millis(within_ms)));
        match rescuer {
            Rescuer::Person => format!(
                "they wait for a person: `heartline recover silent -t {task}`, then `recover running` or `recover fail`"
            ),
            Rescuer::NextWorker => {
                format!("no live worker can recover them: start one, which does so within about {within}; {at_once}")
            }
            Rescuer::LiveWorkers => format!("live workers recover them within about {within}; {at_once}"),
        }
    }

    /// How a person recovers its jobs. If the worker may be frozen, the person first checks its process.
    fn at_once(&self, more: u64) -> String {
        let is_in_doubt = more == 0 && self.death.is_none() && !self.has_stopped && !self.host.is_empty();
        let check = self.pid.filter(|_| is_in_doubt).map_or_else(String::new, |pid| {
            let place = if self.is_contained { "inside its container on" } else { "on" };
            format!(
                "check it first: {place} {}, `ps -o stat= -p {pid}` shows T if it is frozen (`kill -CONT {pid}` resumes it), and nothing if it \
                 is dead; ",
                self.host
            )
        });
        let doubt = if self.death.is_some() { "" } else { ", if it is dead," };
        let id = if more > 0 { "ID".to_owned() } else { quoted(self.worker.as_str()) };
        format!("{check}`heartline recover worker {id}`{doubt} does it at once, and fails jobs that reached max_stalls")
    }
}
