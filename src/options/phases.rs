//! How long silent jobs wait beyond the interval, by phase.

use std::fmt;
use std::time::Duration;

use crate::config_error::Faults;
use crate::unix_time::to_ms;

/// The options of each phase of a held job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OwnPhases {
    pub(super) claimed: OwnPhase,
    pub(super) running: OwnPhase,
    pub(super) finalizing: OwnPhase,
}

impl OwnPhases {
    pub(super) const UNSET: OwnPhases =
        OwnPhases { claimed: OwnPhase::UNSET, running: OwnPhase::UNSET, finalizing: OwnPhase::UNSET };

    pub(super) fn or(self, fallback: OwnPhases) -> OwnPhases {
        OwnPhases {
            claimed: self.claimed.or(fallback.claimed),
            running: self.running.or(fallback.running),
            finalizing: self.finalizing.or(fallback.finalizing),
        }
    }

    pub(super) fn resolve(self, interval: Duration, faults: &mut Faults) -> PhaseWaits {
        for (field, phase) in [("claimed_interval", self.claimed), ("finalizing_interval", self.finalizing)] {
            if let Some(own) = phase.interval {
                faults.phase_interval(&format!("stall.{field}"), own, interval);
            }
        }
        PhaseWaits {
            claimed: self.claimed.wait(interval),
            running: self.running.wait(interval),
            finalizing: self.finalizing.wait(interval),
        }
    }
}

/// The options of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OwnPhase {
    pub(super) interval: Option<Duration>,
    pub(super) is_recovered: Option<bool>,
}

impl OwnPhase {
    const UNSET: OwnPhase = OwnPhase { interval: None, is_recovered: None };

    fn or(self, fallback: OwnPhase) -> OwnPhase {
        OwnPhase {
            interval: self.interval.or(fallback.interval),
            is_recovered: self.is_recovered.or(fallback.is_recovered),
        }
    }

    fn wait(self, interval: Duration) -> Wait {
        match self {
            OwnPhase { is_recovered: Some(false), .. } => Wait::ForPerson,
            OwnPhase { interval: Some(own), .. } if own > interval => Wait::For(own),
            _ => Wait::Interval,
        }
    }
}

/// How long silent jobs of each phase wait before the sweep decides about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PhaseWaits {
    claimed: Wait,
    running: Wait,
    finalizing: Wait,
}

impl PhaseWaits {
    /// Whether no phase waits for more than an interval.
    pub(crate) fn is_plain(&self) -> bool {
        *self == PhaseWaits::default()
    }
}

/// The text that the scripts read; empty if no phase waits longer.
impl fmt::Display for PhaseWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return Ok(());
        }
        write!(f, "{} {} {}", self.claimed, self.running, self.finalizing)
    }
}

/// How long a silent job waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wait {
    /// One interval.
    #[default]
    Interval,
    /// Longer than an interval.
    For(Duration),
    /// Until a person decides.
    ForPerson,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Interval => f.write_str("0"),
            Wait::For(time) => write!(f, "{}", to_ms(*time)),
            Wait::ForPerson => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::stall::StallOptions;
    use crate::options::task::TaskOptions;

    fn grace(own: StallOptions, of_app: StallOptions) -> String {
        let resolved = TaskOptions::new().stall(own).resolve(&TaskOptions::new().stall(of_app)).unwrap();
        resolved.grace.to_string()
    }

    #[test]
    fn a_phase_waits_longer_only_if_that_is_set() {
        let plain = StallOptions::new;
        let minute = Duration::from_secs(60);
        assert_eq!(grace(plain(), plain()), "");
        assert_eq!(grace(plain().recover_running(true), plain().recover_running(false)), "");
        assert_eq!(grace(plain().claimed_interval(Duration::from_secs(30)), plain()), "", "it is the interval");
        assert_eq!(grace(plain().claimed_interval(minute), plain()), "60000 0 0");
        assert_eq!(grace(plain(), plain().finalizing_interval(minute)), "0 0 60000");
        assert_eq!(grace(plain().claimed_interval(minute).recover_claimed(false), plain()), "off 0 0");
        assert_eq!(grace(plain().recover_running(false), plain().recover_finalizing(false)), "0 off off");
    }

    #[test]
    fn the_wait_of_a_phase_is_between_the_interval_and_a_day() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let options = StallOptions::new().claimed_interval(second).finalizing_interval(day + second);
        let faults = TaskOptions::new().stall(options).resolve(&TaskOptions::new()).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["stall.claimed_interval", "stall.finalizing_interval"]);
    }
}
