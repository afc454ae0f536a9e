//! The rule of a schedule as Redis holds it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cron::CronRule;
use super::policy::{Missed, Overlap};
use super::rule::{Pattern, Schedule};
use super::zone::{self, UTC, Zone};
use crate::config_error::ConfigErrors;
use crate::unix_time::to_ms;

/// The JSON of a rule. A field that this version does not know is an error: a newer version wrote the rule.
///
/// Every option is written, so that another default in a later version changes no stored rule.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    tz: String,
    jitter_ms: u64,
    overlap: Overlap,
    missed: Missed,
    grace_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
}

impl StoredRule {
    pub(crate) fn to_json(schedule: &Schedule) -> String {
        let (cron, every_ms) = match &schedule.pattern {
            Pattern::Cron(cron) => (Some(cron.text().to_owned()), None),
            Pattern::Every(gap) => (None, Some(to_ms(*gap))),
        };
        let stored = StoredRule {
            cron,
            every_ms,
            tz: schedule.zone.name().to_owned(),
            jitter_ms: to_ms(schedule.jitter),
            overlap: schedule.overlap,
            missed: schedule.missed,
            grace_ms: to_ms(schedule.grace),
            from_ms: schedule.from_ms,
            until_ms: schedule.until_ms,
        };
        // Text and numbers can always be written.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads a rule and checks it.
    ///
    /// # Errors
    /// Why this version cannot read it, on one line.
    pub(crate) fn read(json: &str) -> Result<Schedule, String> {
        let stored: StoredRule = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let one_line = |faults: ConfigErrors| faults.to_string().replace('\n', "; ");
        let pattern = match (&stored.cron, stored.every_ms) {
            (Some(text), None) => {
                let has_seconds = text.split_whitespace().count() > 5;
                Pattern::Cron(CronRule::parse(text, has_seconds).map_err(one_line)?)
            }
            (None, Some(gap)) => Pattern::Every(Duration::from_millis(gap)),
            _ => return Err("a rule has either `cron` or `every_ms`".to_owned()),
        };
        let mut schedule = Schedule::of(pattern);
        schedule.zone = Zone::named(&stored.tz).map_err(one_line)?;
        schedule.jitter = Duration::from_millis(stored.jitter_ms);
        schedule.overlap = stored.overlap;
        schedule.missed = stored.missed;
        schedule.grace = Duration::from_millis(stored.grace_ms);
        (schedule.from_ms, schedule.until_ms) = (stored.from_ms, stored.until_ms);
        schedule.check().map_err(one_line)?;
        Ok(schedule)
    }
}

/// Names a rule and an input (JSON) by their content, and the codec that encodes the input. The version of the zone data does not
/// belong to it.
pub(crate) fn digest(schedule: &Schedule, input: &[u8], encoder: Option<&str>) -> String {
    let mut content = StoredRule::to_json(schedule).into_bytes();
    content.push(b'\n');
    content.extend_from_slice(input);
    if let Some(name) = encoder {
        content.push(b'\n');
        content.extend_from_slice(name.as_bytes());
    }
    let digits = base62::encode_fmt(Uuid::new_v5(&Uuid::NAMESPACE_OID, &content).as_u128());
    format!("{digits:0>22}")
}

/// The version of the zone data from which this process computes the ticks; `-` if they depend on none.
pub(crate) fn zone_data(schedule: &Schedule) -> &'static str {
    match &schedule.pattern {
        Pattern::Cron(_) if schedule.zone.name() != UTC => zone::data_version(),
        _ => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix_time::at_ms;

    fn nightly() -> Schedule {
        Schedule::cron("30 2 * * *").unwrap().tz("Europe/Berlin").unwrap()
    }

    #[test]
    fn the_wire_form_of_a_rule_is_fixed() {
        let json = r#"{"cron":"30 2 * * *","tz":"Europe/Berlin","jitter_ms":0,"overlap":"skip","missed":{"once":{"within_ms":86400000}},"grace_ms":60000}"#;
        assert_eq!(StoredRule::to_json(&nightly()), json);
        let poll = Schedule::every(Duration::from_secs(30)).overlap(Overlap::Replace).missed(Missed::All(5));
        let json = r#"{"every_ms":30000,"tz":"UTC","jitter_ms":0,"overlap":"replace","missed":{"all":5},"grace_ms":60000,"from_ms":7}"#;
        assert_eq!(StoredRule::to_json(&poll.from(at_ms(7))), json);
    }

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let hour = Duration::from_secs(3600);
        for schedule in [
            nightly(),
            Schedule::cron_with_seconds("*/10 * * * * *").unwrap().missed(Missed::Skip),
            Schedule::every(hour).jitter(Duration::from_nanos(1_000_001)).grace(hour).overlap(Overlap::Allow),
            Schedule::every(hour).from(at_ms(5)).until(at_ms(7_200_000)).missed(Missed::All(1_000)),
        ] {
            let json = StoredRule::to_json(&schedule);
            assert_eq!(StoredRule::read(&json), Ok(schedule), "{json}");
        }
    }

    #[test]
    fn a_rule_that_cannot_be_read_says_why() {
        let json = StoredRule::to_json(&nightly());
        let read = |from: &str, to: &str| StoredRule::read(&json.replace(from, to)).unwrap_err();
        assert!(read("{\"cron\"", "{\"calendar\":1,\"cron\"").starts_with("unknown field `calendar`"));
        assert!(read("\"skip\"", "\"merge\"").starts_with("unknown variant `merge`"));
        assert!(read("Europe/Berlin", "Europe/Atlantis").starts_with("tz is \"Europe/Atlantis\": "));
        assert!(read("30 2", "30 25").starts_with("cron field 2 (hour) is \"25\": "));
        assert!(read("{\"cron\"", "{\"every_ms\":1,\"cron\"").starts_with("a rule has either"));
        let two = read("\"jitter_ms\":0", "\"jitter_ms\":86400000") + &read("60000", "999");
        assert!(two.contains("jitter is 1d: ") && two.contains("grace is 999ms: ") && !two.contains('\n'));
        assert!(StoredRule::read("").is_err() && StoredRule::read("{}").is_err());
    }

    #[test]
    fn the_digest_covers_the_rule_and_the_input() {
        let name = digest(&nightly(), b"{}", None);
        // Stored rows depend on it: it must never change.
        assert_eq!(name, "0ZLI8tQITCjfOPacWrKSlS");
        assert_eq!(name, digest(&Schedule::cron(" 30 2  * * *").unwrap().tz("europe/berlin").unwrap(), b"{}", None));
        for other in [nightly().missed(Missed::Skip), nightly().grace(Duration::from_secs(61))] {
            assert_ne!(name, digest(&other, b"{}", None));
        }
        assert_ne!(name, digest(&nightly(), b"{ }", None));
        assert_ne!(name, digest(&nightly(), b"{}", Some("aes-gcm")));
        assert_eq!(digest(&nightly(), b"", None).len(), 22);
    }

    #[test]
    fn only_patterns_in_a_zone_depend_on_zone_data() {
        assert_eq!(zone_data(&nightly()), zone::data_version());
        assert_eq!(zone_data(&Schedule::cron("30 2 * * *").unwrap()), "-");
        assert_eq!(zone_data(&Schedule::every(Duration::from_secs(30))), "-");
    }
}
