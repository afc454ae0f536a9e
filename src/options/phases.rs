//! How long silent jobs wait beyond the interval, by phase.

use std::fmt;
use std::time::Duration;

use crate::unix_time::to_ms;

/// How long silent jobs of each phase wait before the sweep decides about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PhaseWaits {
    pub(super) claimed: Wait,
    pub(super) running: Wait,
    pub(super) finalizing: Wait,
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
pub(super) enum Wait {
    /// One interval.
    #[default]
    Interval,
    /// Longer than an interval.
    For(Duration),
    /// Until a person decides.
    ForPerson,
}

impl Wait {
    /// The wait of a phase with these options.
    pub(super) fn new(own: Option<Duration>, is_recovered: Option<bool>, interval: Duration) -> Wait {
        match own {
            _ if is_recovered == Some(false) => Wait::ForPerson,
            Some(own) if own > interval => Wait::For(own),
            _ => Wait::Interval,
        }
    }
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
