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

/// A number that any thread may add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_ms(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a worker counts about one of its tasks. [`TaskStats`] explains the numbers.
#[derive(Debug, Default)]
pub(crate) struct TaskTally {
    pub(crate) beats: Timing,
    pub(crate) settles: Timing,
    pub(crate) reported: Counter,
    pub(crate) claimed: Counter,
    pub(crate) repeated: Counter,
    pub(crate) sweeps: Counter,
    stalls: [[Counter; StallAction::ALL.len()]; FOUND_BY.len()],
    pub(crate) locks_lost: Counter,
    pub(crate) at_risk: Counter,
    pub(crate) not_replicated: Counter,
    watch_breaks: [AtomicU64; DetectorReset::ALL.len()],
}

impl TaskTally {
    /// Counts a decision of this worker about a job: in a sweep, or because the job's worker is dead.
    pub(crate) fn stalled(&self, reason: StallReason, action: &str) {
        let by = FOUND_BY.iter().position(|known| *known == reason);
        let at = StallAction::ALL.iter().position(|known| known.as_str() == action);
        if let Some((by, at)) = by.zip(at) {
            self.stalls[by][at].add(1);
        }
    }

    /// Stores how often each cause broke the watch.
    pub(crate) fn watch_broken(&self, breaks: &[u64; DetectorReset::ALL.len()]) {
        self.watch_breaks.iter().zip(breaks).for_each(|(stored, breaks)| stored.store(*breaks, Ordering::Relaxed));
    }
}

/// What a worker counts about itself as a whole. [`WorkerStats`] explains the numbers.
#[derive(Debug, Default)]
pub(crate) struct WorkerTally {
    pub(crate) standstills: Counter,
    pub(crate) stood_still_ms: Counter,
    pub(crate) blocked_ms: Counter,
}

impl WorkerTally {
    /// The current figures, with those of its tasks.
    pub(crate) fn read(&self, tasks: Vec<TaskStats>) -> WorkerStats {
        WorkerStats {
            standstills: self.standstills.read(),
            stood_still: Duration::from_millis(self.stood_still_ms.read()),
            runtime_blocked: Duration::from_millis(self.blocked_ms.read()),
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
    /// For how long the process was frozen, in total.
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
    /// How many outcomes those calls reported.
    pub reported: u64,
    /// How many jobs those calls claimed.
    pub claimed: u64,
    /// How often such a call was repeated.
    pub repeated: u64,
    /// Finished sweeps of this worker. Each began an epoch.
    pub sweeps: u64,
    /// Jobs that these sweeps decided about, or that were recovered from dead workers of this host: how each stall was
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
        let by_action = |counts: &[Counter; StallAction::ALL.len()]| {
            StallAction::ALL.into_iter().zip(counts.iter().map(Counter::read)).collect()
        };
        let breaks = self.watch_breaks.iter().map(|count| count.load(Ordering::Relaxed));
        TaskStats {
            task: task.to_owned(),
            held: held as u64,
            slots: slots as u64,
            beats: self.beats.read(),
            settles: self.settles.read(),
            reported: self.reported.read(),
            claimed: self.claimed.read(),
            repeated: self.repeated.read(),
            sweeps: self.sweeps.read(),
            stalls: FOUND_BY.into_iter().zip(self.stalls.iter().map(by_action)).collect(),
            locks_lost: self.locks_lost.read(),
            at_risk: self.at_risk.read(),
            not_replicated: self.not_replicated.read(),
            watch_breaks: DetectorReset::ALL.into_iter().zip(breaks).collect(),
        }
    }
}
