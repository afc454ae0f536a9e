//! What a task chooses between.

use serde::Serialize;

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

/// Which of the task's waiting jobs run first.
///
/// Jobs of one priority run in the order of dispatch; those that stalled or were requeued go to the front, the ones of a
/// dead worker in no order among themselves. A steady flow of high ones keeps the others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
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
