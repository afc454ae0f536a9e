//! The rules for a schedule.

use std::time::Duration;

use super::policy::{Missed, short};
use super::rule::{Pattern, SECOND, Schedule};
use crate::config_error::{ConfigErrors, Faults};
use crate::limits::LONGEST;

/// The longest grace.
const DAY: Duration = Duration::from_secs(86_400);

/// The most runs for missed ticks.
const MOST_RUNS: u64 = 1_000;

impl Schedule {
    /// Checks the rule.
    ///
    /// # Errors
    /// Every rule that is broken, at once.
    pub(crate) fn check(&self) -> Result<(), ConfigErrors> {
        let mut faults = Faults::default();
        if let Pattern::Every(gap) = self.pattern {
            check_time(&mut faults, "every", gap, SECOND, LONGEST);
        }
        let gap = Duration::from_millis(self.shortest_gap_ms());
        if self.jitter >= gap {
            let rule = format!("must be below the shortest gap of the schedule, {}", short(gap));
            faults.add("jitter", short(self.jitter), rule, "lower it, or tick less often");
        }
        match self.missed {
            Missed::Once { within } => check_time(&mut faults, "missed.within", within, Duration::ZERO, LONGEST),
            Missed::All(most) => faults.number("missed.all", most.into(), 1, MOST_RUNS),
            Missed::Skip => {}
        }
        check_time(&mut faults, "grace", self.grace, SECOND, DAY);
        let bound = self.until_ms.map(|until| ("until", until)).or(self.from_ms.map(|from| ("from", from)));
        if let Some((field, ms)) = bound
            && self.next_after(0).is_none()
        {
            let fix = "leave it out, or move it until `preview` shows a tick";
            faults.add(field, format!("{ms} ms after 1970"), "must leave at least one tick", fix);
        }
        faults.finish()
    }
}

fn check_time(faults: &mut Faults, field: &str, value: Duration, least: Duration, most: Duration) {
    if value < least || value > most {
        let shown = |time| if time == LONGEST { "10 years".to_owned() } else { short(time) };
        let rule = format!("must be {} to {}", short(least), shown(most));
        let (bound, side) = if value < least { (least, "more") } else { (most, "less") };
        faults.add(field, short(value), rule, format!("use {} or {side}", shown(bound)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix_time::at_ms;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn every_broken_rule_is_reported_at_once() {
        let broken = Schedule::every(Duration::from_millis(500))
            .jitter(seconds(1))
            .missed(Missed::All(1_001))
            .grace(Duration::ZERO)
            .from(at_ms(5_000))
            .until(at_ms(5_000));
        let errors = broken.check().unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["every", "jitter", "missed.all", "grace", "until"]);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts[0], "every is 500ms: it must be 1s to 10 years; use 1s or more");
        assert_eq!(texts[2], "missed.all is 1001: it must be 1 to 1000; use 1000 or less");
        assert_eq!(texts[3], "grace is 0ns: it must be 1s to 1d; use 1s or more");

        let hourly = Schedule::cron("0 * * * *").unwrap();
        assert!(hourly.clone().jitter(seconds(3_599)).grace(DAY).check().is_ok());
        assert!(hourly.jitter(seconds(3_600)).check().is_err());
        assert!(Schedule::every(LONGEST + SECOND).check().is_err());
        let long = Missed::Once { within: Duration::MAX };
        assert!(Schedule::every(SECOND).missed(long).check().is_err());
        assert!(Schedule::every(LONGEST).from(at_ms(u64::MAX)).check().is_err());
    }
}
