//! What a worker counts about itself: plain numbers. Any of its threads may add to them, and any caller may read them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::backend::scripts;
use crate::latency::{LatencySummary, Timing};
use crate::stall::action::{StallAction, StallReason};
use crate::stall::witness::DetectorReset;
use crate::unix_time::as_ms;

/// How a worker itself may detect that a job stalled.
const FOUND_BY: [StallReason; 3] = [StallReason::Silent, StallReason::HandlerSilent, StallReason::WorkerRestarted];

/// What a worker counts about one of its tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskTally {
    pub(crate) beats: Timing,
    pub(crate) settles: Timing,
    reported: AtomicU64,
    claimed: AtomicU64,
    repeated: AtomicU64,
    sweeps: AtomicU64,
    stalls: [[AtomicU64; StallAction::ALL.len()]; FOUND_BY.len()],
    locks_lost: AtomicU64,
    at_risk: AtomicU64,
    not_replicated: AtomicU64,
    watch_breaks: [AtomicU64; DetectorReset::ALL.len()],
}

impl TaskTally {
    /// Counts an answered settle call.
    pub(crate) fn settled(&self, took: Duration, reported: usize, claimed: usize) {
        self.settles.add(took);
        self.reported.fetch_add(reported as u64, Ordering::Relaxed);
        self.claimed.fetch_add(claimed as u64, Ordering::Relaxed);
    }

    /// Counts a repeat of a settle call.
    pub(crate) fn repeats(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished sweep of this worker.
    pub(crate) fn swept(&self) {
        self.sweeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a decision of this worker about a job: in a sweep, or because the job's worker is dead.
    pub(crate) fn stalled(&self, reason: StallReason, action: &str) {
        let by = FOUND_BY.iter().position(|known| *known == reason);
        let at = StallAction::ALL.iter().position(|known| known.as_str() == action);
        if let Some((by, at)) = by.zip(at) {
            self.stalls[by][at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn lock_lost(&self) {
        self.locks_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts outcomes that fewer replicas have than the task asks for.
    pub(crate) fn not_replicated(&self, outcomes: usize) {
        self.not_replicated.fetch_add(outcomes as u64, Ordering::Relaxed);
    }

    pub(crate) fn came_at_risk(&self) {
        self.at_risk.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores how often each cause broke the watch.
    pub(crate) fn watch_broken(&self, breaks: &[u64; DetectorReset::ALL.len()]) {
        self.watch_breaks.iter().zip(breaks).for_each(|(told, breaks)| told.store(*breaks, Ordering::Relaxed));
    }
}

/// What a worker counts about itself as a whole.
#[derive(Debug, Default)]
pub(crate) struct WorkerTally {
    standstills: AtomicU64,
    stood_still_ms: AtomicU64,
    blocked_ms: AtomicU64,
}

impl WorkerTally {
    pub(crate) fn stood_still(&self, time: Duration) {
        self.standstills.fetch_add(1, Ordering::Relaxed);
        self.stood_still_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn was_blocked(&self, time: Duration) {
        self.blocked_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// The current figures, with those of its tasks.
    pub(crate) fn read(&self, tasks: Vec<TaskStats>) -> WorkerStats {
        WorkerStats {
            standstills: read(&self.standstills),
            stood_still: Duration::from_millis(read(&self.stood_still_ms)),
            runtime_blocked: Duration::from_millis(read(&self.blocked_ms)),
            tasks,
            calls: scripts::answered(),
        }
    }
}

/// What a worker has counted about itself since it started. See [`WorkerMonitor::stats`](crate::WorkerMonitor::stats).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerStats {
    /// How often the process was frozen: stopped, on a paused machine, or without CPU time.
    pub standstills: u64,
    /// For how long, in total.
    #[serde(rename = "stood_still_ms", serialize_with = "as_ms")]
    pub stood_still: Duration,
    /// For how long handlers have blocked the runtime, in total. A block is added when it is over.
    #[serde(rename = "runtime_blocked_ms", serialize_with = "as_ms")]
    pub runtime_blocked: Duration,
    /// Its tasks; none before it runs and after it has stopped.
    pub tasks: Vec<TaskStats>,
    /// How long the scripts called by this process took to be answered, by name, over all of its Apps and workers.
    pub calls: BTreeMap<&'static str, LatencySummary>,
}

/// What a worker has counted about one of its tasks since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskStats {
    /// The task.
    pub task: String,
    /// Jobs that it holds now.
    pub held: u64,
    /// How many it may hold.
    pub slots: u64,
    /// Heartbeats that were answered.
    pub beats: LatencySummary,
    /// Answered calls that report outcomes and claim jobs: how long the last try of each took.
    pub settles: LatencySummary,
    /// How many outcomes those reported.
    pub reported: u64,
    /// How many jobs those claimed.
    pub claimed: u64,
    /// How often one was repeated.
    pub repeated: u64,
    /// Finished sweeps of this worker. Each began an epoch.
    pub sweeps: u64,
    /// Jobs that those decided about or that were recovered from dead workers of this host: how each stall was
    /// detected, what was done, and how often.
    pub stalls: BTreeMap<StallReason, BTreeMap<StallAction, u64>>,
    /// Jobs that were taken from this worker while it ran them.
    pub locks_lost: u64,
    /// Jobs that were at risk: no heartbeat was answered for too long.
    pub at_risk: u64,
    /// Outcomes that fewer replicas had than [`TaskOptions::settle_replicated`](crate::TaskOptions::settle_replicated) requires.
    pub not_replicated: u64,
    /// What broke its watch over the task, and how often.
    pub watch_breaks: BTreeMap<DetectorReset, u64>,
}

impl TaskTally {
    /// The current figures.
    pub(crate) fn read(&self, task: &str, held: usize, slots: usize) -> TaskStats {
        TaskStats {
            task: task.to_owned(),
            held: held as u64,
            slots: slots as u64,
            beats: self.beats.read(),
            settles: self.settles.read(),
            reported: read(&self.reported),
            claimed: read(&self.claimed),
            repeated: read(&self.repeated),
            sweeps: read(&self.sweeps),
            stalls: FOUND_BY.into_iter().zip(self.stalls.iter().map(by_action)).collect(),
            locks_lost: read(&self.locks_lost),
            at_risk: read(&self.at_risk),
            not_replicated: read(&self.not_replicated),
            watch_breaks: DetectorReset::ALL.into_iter().zip(self.watch_breaks.iter().map(read)).collect(),
        }
    }
}

fn by_action(counts: &[AtomicU64; StallAction::ALL.len()]) -> BTreeMap<StallAction, u64> {
    StallAction::ALL.into_iter().zip(counts.iter().map(read)).collect()
}

fn read(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}
