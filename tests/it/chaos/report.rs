//! The result of a run: one line of JSON.

use serde::Serialize;

use crate::chaos::plan::Kind;

/// How many breaches are listed; all are counted.
const LISTED: usize = 30;

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    pub seconds: u64,
    pub engines: Vec<Kind>,
    /// Jobs that were acknowledged.
    pub jobs: usize,
    pub workflows: usize,
    pub ticks: u64,
    pub kills: usize,
    pub freezes: usize,
    pub deploys: usize,
    pub cuts: usize,
    pub server_faults: usize,
    pub failovers: usize,
    /// Calls of producers that failed.
    pub refused: usize,
    /// Events that the subscription of the test missed.
    pub missed_events: u64,
    /// Jobs that were taken from workers.
    pub stalls: usize,
    /// Those of dead and frozen workers that a healthy one watched, and how long the slowest took.
    pub detections: usize,
    pub slowest_detection_ms: u64,
    /// Runs that continued at a checkpoint.
    pub checkpoints: usize,
    /// Jobs, ends of jobs and workflows that a server lost, and might lose.
    pub at_risk: usize,
    /// Others that are missing or have not ended.
    pub lost: usize,
    pub double_recorded: usize,
    pub false_stalls: usize,
    pub over_limit: usize,
    pub breaches: Vec<Breach>,
    /// How many breaches are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_breaches: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What must not happen.
#[derive(Debug, Serialize)]
pub struct Breach {
    pub what: &'static str,
    /// The job, or what it is about.
    pub about: String,
    pub seen: String,
}

impl Report {
    pub fn breach(&mut self, what: &'static str, about: &str, seen: impl Into<String>) {
        if self.breaches.len() < LISTED {
            self.breaches.push(Breach { what, about: about.to_owned(), seen: seen.into() });
        } else {
            self.more_breaches += 1;
        }
    }
}
