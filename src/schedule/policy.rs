//! What happens to ticks that cannot fire at once, and the words for schedules and ticks.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::enum_str::names;
use crate::unix_time::ms;

/// What a tick does while the last job of its schedule has not ended.
///
/// A job that waits or is delayed has not ended either. A job that a person started with `run_now` counts as the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// The tick creates no job and counts as overlapped.
    #[default]
    Skip,
    /// The newest tick waits until the last job has ended. A tick that it displaces counts as overlapped.
    Queue,
    /// As `Queue`, and the last job is cancelled.
    Replace,
    /// The tick creates its job at once.
    Allow,
}

names!(Overlap, "overlap", {
    Skip = "skip",
    Queue = "queue",
    Replace = "replace",
    Allow = "allow",
});

/// What happens to ticks that no worker fired in time: later than [`Schedule::grace`](crate::Schedule::grace) allows.
///
/// Those that create no job count as missed. A schedule that is paused misses no tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Missed {
    /// The newest of them creates a job, if it is not older than `within`.
    Once {
        /// At most 10 years.
        #[serde(rename = "within_ms", with = "ms")]
        within: Duration,
    },
    /// None of them creates a job.
    Skip,
    /// The newest of them create a job each, up to this number: 1 to 1,000.
    All(u32),
}

impl Missed {
    /// One job for all missed ticks, if the newest is at most a day old.
    pub const ONCE: Missed = Missed::Once { within: Duration::from_secs(86_400) };
}

impl Default for Missed {
    fn default() -> Self {
        Missed::ONCE
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missed::Once { within } => write!(f, "one run, within {}", short(*within)),
            Missed::Skip => f.write_str("no run"),
            Missed::All(most) => write!(f, "up to {most} runs"),
        }
    }
}

/// Who wrote the rule of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleSource {
    /// A worker, from its code.
    Code,
    /// A process at run time, with [`TaskRef::schedules`](crate::TaskRef::schedules).
    RunTime,
}

names!(ScheduleSource, "source", {
    Code = "code",
    RunTime = "run_time",
});

/// How a tick was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TickOutcome {
    /// It created a job.
    Fired,
    /// It created none, because the last job had not ended.
    Overlapped,
    /// No worker fired it in time.
    Missed,
    /// The schedule was paused.
    Paused,
    /// A person created a job for it.
    ByHand,
}

names!(TickOutcome, "outcome", {
    Fired = "fired",
    Overlapped = "overlapped",
    Missed = "missed",
    Paused = "paused",
    ByHand = "by_hand",
});

/// A duration in one unit: `30s`, `5m`, `2h`, `1d`; `90s` and `1.5s` if no larger unit is exact.
pub(super) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let is_whole = |unit: u64| time.subsec_nanos() == 0 && seconds > 0 && seconds.is_multiple_of(unit);
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    match units.into_iter().find(|(unit, _)| is_whole(*unit)) {
        Some((unit, letter)) => format!("{}{letter}", seconds / unit),
        None => format!("{time:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_one_exact_unit() {
        let shown = |ms| short(Duration::from_millis(ms));
        let all = [0, 250, 1_500, 30_000, 90_000, 120_000, 7_200_000, 86_400_000, 604_800_000].map(shown);
        assert_eq!(all, ["0ns", "250ms", "1.5s", "30s", "90s", "2m", "2h", "1d", "7d"]);
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        let once = serde_json::to_string(&Missed::default()).unwrap();
        assert_eq!(once, r#"{"once":{"within_ms":86400000}}"#);
        for missed in [Missed::ONCE, Missed::Skip, Missed::All(7)] {
            let json = serde_json::to_string(&missed).unwrap();
            assert_eq!(serde_json::from_str::<Missed>(&json).unwrap(), missed, "{json}");
        }
        assert!(serde_json::from_str::<Missed>(r#"{"once":{"within_ms":1,"later":2}}"#).is_err());
        let shown = [Missed::ONCE, Missed::Skip, Missed::All(7)].map(|missed| missed.to_string());
        assert_eq!(shown, ["one run, within 1d", "no run", "up to 7 runs"]);
        assert_eq!("replace".parse::<Overlap>().unwrap(), Overlap::Replace);
        assert_eq!(TickOutcome::ByHand.to_string(), "by_hand");
        assert_eq!(ScheduleSource::RunTime.as_str(), "run_time");
    }
}
