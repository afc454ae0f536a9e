//! The specification for parked jobs: silent ones whose phase waits for longer, or for a person.

use std::collections::BTreeSet;

use super::{Job, Model, Place};
use crate::simulation::FAR;

/// The phase of a held job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Claimed,
    Running,
    Finalizing,
}

impl Phase {
    fn word(self) -> &'static str {
        ["claimed", "running", "finalizing"][self as usize]
    }
}

/// What a silent job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The interval.
    Plain,
    /// A time that never passes; tests decide when it has.
    Longer,
    /// A person.
    Off,
}

/// The wait of each phase, in their order.
pub type Waits = [Wait; 3];

pub const PLAIN: Waits = [Wait::Plain; 3];

/// As the task declares it.
pub fn text(waits: Waits) -> String {
    if waits == PLAIN {
        return String::new();
    }
    let word = |wait| match wait {
        Wait::Plain => "0".to_owned(),
        Wait::Longer => FAR.to_string(),
        Wait::Off => "off".to_owned(),
    };
    waits.map(word).join(" ")
}

/// The decision about stalled jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By the options of the task.
    Auto,
    Recover,
    Fail,
}

/// The mark of a parked job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    fence: u64,
    phase: Phase,
    /// Since when it was silent, ms of the server.
    since: u64,
}

impl Mark {
    pub(super) fn text(&self) -> String {
        format!("{} {} {}", self.fence, self.phase.word(), self.since)
    }
}

impl Job {
    fn phase(&self) -> Phase {
        match self {
            Job { outcome: Some(_), .. } => Phase::Finalizing,
            Job { claimed: true, .. } => Phase::Claimed,
            _ => Phase::Running,
        }
    }

    fn fence(&self) -> Option<u64> {
        match self.place {
            Place::Running { fence, .. } => Some(fence),
            _ => None,
        }
    }
}

impl Model {
    /// The wait of the phase of the job; a job with a pending cancel does not wait.
    pub fn wait_of(&self, id: &str) -> Wait {
        let job = &self.jobs[id];
        if job.cancel { Wait::Plain } else { self.grace[job.phase() as usize] }
    }

    /// Whether a sweep leaves the job parked for now.
    pub fn waits_longer(&self, id: &str) -> bool {
        match self.wait_of(id) {
            Wait::Plain => false,
            Wait::Longer => self.silent_since(id) >= self.began_at,
            Wait::Off => true,
        }
    }

    /// Whether it is parked, and held by the same token in the same phase since.
    pub fn is_parked(&self, id: &str) -> bool {
        self.mark_of(id).is_some()
    }

    /// Whether it is held with an outdated mark (an earlier token, or another phase).
    pub fn has_old_mark(&self, id: &str) -> bool {
        self.parked.contains_key(id)
            && self.jobs.get(id).is_some_and(|job| job.fence().is_some())
            && !self.is_parked(id)
    }

    /// A sweep parked these jobs.
    pub fn parked(&mut self, ids: &BTreeSet<String>) {
        for id in ids {
            assert!(self.candidates.remove(id), "{id} was not a candidate");
            self.active.insert(id.clone());
            let (job, since) = (&self.jobs[id], self.silent_since(id));
            let fence = job.fence().unwrap_or_else(|| panic!("{id} is parked but not held"));
            let mark = Mark { fence, phase: job.phase(), since };
            self.parked.insert(id.clone(), mark);
        }
    }

    /// Lets the time of silent jobs pass: of parked ones or, by the snapshot, of all that it found.
    pub fn pass_waits(&mut self, by_snapshot: bool) {
        if by_snapshot {
            self.snapshot_at -= FAR;
        } else {
            self.parked.values_mut().for_each(|mark| mark.since -= FAR);
        }
    }

    /// Those of the ids about which a person decides at once.
    pub fn decided_by_hand(&self, ids: &[String]) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let taken = ids.iter().filter(|id| self.grace != PLAIN && self.is_parked(id) && seen.insert(*id));
        taken.cloned().collect()
    }

    /// The jobs that these workers hold.
    pub fn held_by(&self, workers: &[String]) -> BTreeSet<String> {
        let is_held = |job: &Job| matches!(&job.place, Place::Running { worker, .. } if workers.contains(worker));
        self.jobs.iter().filter(|(_, job)| is_held(job)).map(|(id, _)| id.clone()).collect()
    }

    /// A heartbeat came for the job.
    pub(super) fn hear(&mut self, id: &str) {
        if self.grace != PLAIN {
            self.parked.remove(id);
        }
    }

    /// Marks are only valid while heartbeats remove them.
    pub(super) fn be_patient(&mut self, waits: Waits) {
        if waits != self.grace && (waits == PLAIN || self.grace == PLAIN) {
            self.parked.clear();
        }
        self.grace = waits;
    }

    /// A person has decided about them.
    pub fn drop_marks_of(&mut self, ids: &[String]) {
        for id in ids {
            self.parked.remove(id);
        }
    }

    /// Marks of jobs that are no longer held, or held by another token. If there are few, all are checked.
    pub(super) fn drop_marks(&mut self) {
        if self.grace != PLAIN {
            let jobs = &self.jobs;
            self.parked.retain(|id, mark| jobs.get(id).and_then(Job::fence) == Some(mark.fence));
        }
    }

    fn silent_since(&self, id: &str) -> u64 {
        self.mark_of(id).map_or(self.snapshot_at, |mark| mark.since.min(self.snapshot_at))
    }

    fn mark_of(&self, id: &str) -> Option<&Mark> {
        let (mark, job) = (self.parked.get(id)?, self.jobs.get(id)?);
        (job.fence() == Some(mark.fence) && job.phase() == mark.phase).then_some(mark)
    }
}
