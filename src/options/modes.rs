//! The choices that a task has: events, durability, priority.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::enum_str::names;

/// Whether a task writes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventMode {
    /// The task writes its transitions to its event stream, those of one call in one entry. About 10,000 entries are kept.
    #[default]
    On,
    /// The task writes only stalls, which saves Redis some time. A caller that waits for a result then polls the state,
    /// first after 1 s, then after longer pauses of up to 5 s.
    Off,
}

impl EventMode {
    /// The name of the mode in the task's settings in Redis.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            EventMode::On => "on",
            EventMode::Off => "off",
        }
    }
}

/// When a write counts as recorded: the dispatch of a job, the start of a workflow, a cancel.
///
/// If a primary fails, writes that it acknowledged but had not yet replicated are lost. Under Sentinel and in a cluster, a call can wait
/// for replicas. Outcomes wait if [`TaskOptions::settle_replicated`](crate::TaskOptions::settle_replicated) is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// As soon as the server has the job in memory.
    #[default]
    Memory,
    /// As soon as this many replicas have it in memory too. If fewer acknowledge in time, the call fails with
    /// [`Error::NotReplicated`](crate::Error::NotReplicated). The write is recorded anyway, and the same call with the same id waits again.
    /// One replica is enough if the primary dies, since the most advanced replica is promoted. All replicas are needed if the old primary
    /// still accepts writes while another is promoted (a manual failover, a partition). Writes that the promoted one did not acknowledge
    /// are then discarded.
    Replicated {
        /// How many replicas; 1 to 100.
        replicas: u32,
        /// How long to wait for them; 1 ms to 60 s.
        within: Duration,
    },
}

impl Durability {
    /// How much longer a call may take because of it.
    pub(crate) fn time(self) -> Duration {
        self.copies().map_or(Duration::ZERO, |copies| copies.within)
    }

    /// The copies to wait for; `None` for [`Durability::Memory`].
    pub(crate) const fn copies(self) -> Option<Copies> {
        match self {
            Durability::Memory => None,
            Durability::Replicated { replicas, within } => Some(Copies { replicas, within }),
        }
    }
}

/// How many replicas must have a write, and how long to wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copies {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// Which of the task's waiting jobs run first.
///
/// Jobs of one priority run in the order of dispatch. Jobs that stalled or were requeued go to the front of their list; the jobs of one
/// dead worker have no order among themselves. A steady flow of high-priority jobs keeps all others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    High,
    /// After high, before low.
    #[default]
    Normal,
    /// Only when no other job waits.
    Low,
}

names!(Priority, "priority", {
    High = "high",
    Normal = "normal",
    Low = "low",
});
