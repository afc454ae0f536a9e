//! What a task chooses between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::names;

/// Whether a task writes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventMode {
    /// Transitions are written to the event stream, those of one call in one entry; about 10,000 entries are kept.
    #[default]
    On,
    /// No entries, which saves some of Redis's time; stalls are written all the same. Waiting for a result then
    /// rests on reading the state, after a second and then after ever longer pauses of up to 5 s.
    Off,
}

impl EventMode {
    /// The mode as the task's settings in Redis have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            EventMode::On => "on",
            EventMode::Off => "off",
        }
    }
}

/// When a job counts as dispatched.
///
/// A primary that fails takes with it what it acknowledged and had not sent to its replicas yet. Under Sentinel and in a cluster that can be
/// waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// When the server has it in memory.
    #[default]
    Memory,
    /// When so many replicas have it in memory too. If fewer have it within the time, the dispatch fails with
    /// [`Error::NotReplicated`](crate::Error::NotReplicated); the job is written then all the same, and the same dispatch with the same id
    /// waits once more.
    ///
    /// One is enough against a primary that dies, since the replica that has most follows it. Against one that still takes writes while another is
    /// promoted (a failover by hand, a partition) it takes as many as there are: what only others acknowledged is thrown away with it.
    Replicated {
        /// How many; 1 to 100.
        replicas: u32,
        /// For how long they are waited for; 1 ms to 60 s.
        within: Duration,
    },
}

impl Durability {
    /// The copies that are waited for, if any are.
    pub(crate) const fn copies(self) -> Option<Copies> {
        match self {
            Durability::Memory => None,
            Durability::Replicated { replicas, within } => Some(Copies { replicas, within }),
        }
    }
}

/// How many replicas are to have what is written, and for how long that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copies {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// Which of the task's waiting jobs run first.
///
/// Jobs of one priority run in the order of dispatch; those that stalled or were requeued go to the front, the ones of a
/// dead worker in no order among themselves. A steady flow of high ones keeps the others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    High,
    /// Between the two.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

names!(Priority, "priority", {
    High = "high",
    Normal = "normal",
    Low = "low",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_read_back_from_their_names() {
        for priority in [Priority::High, Priority::Normal, Priority::Low] {
            assert_eq!(priority.as_str().parse::<Priority>().unwrap(), priority);
            assert_eq!(priority.to_string(), priority.as_str());
        }
        assert!("HIGH".parse::<Priority>().is_err());
        assert_eq!((EventMode::On.as_str(), EventMode::Off.as_str()), ("on", "off"));
    }
}
