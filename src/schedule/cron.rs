//! Cron patterns: their fields, and the times at which they match in a zone.

use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, YEAR_UPPER_LIMIT};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::config_error::{ConfigError, ConfigErrors, Faults, shown};

/// The longest pattern, in bytes. All values of all fields, one by one, are shorter.
const LONGEST_TEXT: usize = 1_000;

/// Every pattern that matches at all matches within this time: the calendar repeats after 400 years.
const CALENDAR_YEARS: i32 = 401;

/// How many times of the wall clock are tried for one tick. Only a clock that is set back repeats times, once.
const MOST_TRIES: usize = 4;

/// A field of a pattern.
struct CronField {
    name: &'static str,
    values: &'static str,
    /// The names that its values may have.
    words: &'static [&'static str],
    example: &'static str,
}

const FIELD_COUNT: usize = 6;

static FIELDS: [CronField; FIELD_COUNT] = [
    CronField { name: "second", values: "0 to 59", words: &[], example: "*/15" },
    CronField { name: "minute", values: "0 to 59", words: &[], example: "*/15" },
    CronField { name: "hour", values: "0 to 23", words: &[], example: "9-17" },
    CronField { name: "day of month", values: "1 to 31, L, a day with W", words: &[], example: "1,15" },
    CronField {
        name: "month",
        values: "1 to 12, JAN to DEC",
        words: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        example: "1-6",
    },
    CronField {
        name: "day of week",
        values: "0 to 7, SUN to SAT, a day with L or #",
        words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        example: "MON-FRI",
    },
];

/// A pattern of five fields, or of six with seconds.
#[derive(Clone, PartialEq)]
pub(super) struct CronRule {
    /// Its fields, with one space between them.
    text: String,
    /// Shared, since it holds a list of all years.
    cron: Arc<Cron>,
    /// Whether it names one time of the day.
    is_fixed: bool,
}

impl CronRule {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A fault for each field that cannot be read, or one for a pattern that never matches.
    pub(super) fn parse(text: &str, has_seconds: bool) -> Result<CronRule, ConfigErrors> {
        let fields = if has_seconds { &FIELDS[..] } else { &FIELDS[1..] };
        let parts: Vec<&str> = text.split_whitespace().collect();
        if parts.len() != fields.len() || text.len() > LONGEST_TEXT {
            let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let rule = format!("must have {} fields, at most {LONGEST_TEXT} bytes", fields.len());
            let fix = if !has_seconds && parts.len() == FIELDS.len() {
                "use Schedule::cron_with_seconds for a pattern that begins with seconds".to_owned()
            } else {
                format!("write {}, with spaces between them", names.join(", "))
            };
            return Err(ConfigError::new("cron", shown(text), rule, fix).into());
        }
        let mut faults = Faults::default();
        for (at, (field, part)) in fields.iter().zip(&parts).enumerate() {
            if !can_read(at + FIELDS.len() - fields.len(), part) {
                let rule = format!("must be {}, or '*', lists, ranges and steps of them", field.values);
                let fix = format!("use a value like {:?}", field.example);
                faults.add(format!("cron field {} ({})", at + 1, field.name), shown(part), rule, fix);
            }
        }
        faults.finish()?;
        let text = parts.join(" ");
        let with_seconds = if has_seconds { text.clone() } else { format!("0 {text}") };
        let Some(cron) = read(&with_seconds).filter(matches_ever) else {
            let fix = "name a day that one of its months has";
            return Err(ConfigError::new("cron", shown(&text), "must match some day", fix).into());
        };
        let times = if has_seconds { &parts[..3] } else { &parts[..2] };
        let is_fixed = times.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
        Ok(CronRule { text, cron: Arc::new(cron), is_fixed })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The first tick after this time.
    pub(super) fn next_after(&self, zone: &TimeZone, after_ms: u64) -> Option<u64> {
        // Ticks are at whole seconds.
        let after = timestamp(after_ms - after_ms % 1_000)?;
        let next = if self.is_fixed {
            self.next_fixed(zone, after)?
        } else {
            self.cron.find_next_occurrence(&after.to_zoned(zone.clone()), false).ok()?.timestamp()
        };
        ms_of(next).filter(|next| *next > after_ms)
    }

    /// The same for a pattern that names one time of the day: on each day that matches it runs once. If the clock skips
    /// that time, it runs at the end of the gap. If the time repeats, it runs at the first occurrence.
    fn next_fixed(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let next = |local: &DateTime| self.cron.find_next_occurrence(local, false).ok();
        let locals = successors(Some(zone.to_datetime(after)), next);
        locals.skip(1).take(MOST_TRIES).filter_map(|local| first_instant(zone, local)).find(|at| *at > after)
    }

    /// A time shortly before the last `count` ticks up to this time, if there are that many.
    pub(super) fn back(&self, zone: &TimeZone, from_ms: u64, count: usize) -> Option<u64> {
        let mut at = timestamp(from_ms)?.to_zoned(zone.clone());
        for _ in 0..count {
            at = self.cron.find_previous_occurrence(&at, false).ok()?;
        }
        ms_of(at.timestamp())?.checked_sub(1)
    }

    /// The shortest time between two ticks on days in a row, if no clock is changed.
    pub(super) fn shortest_gap_ms(&self) -> u64 {
        const DAY: u32 = 86_400;
        let pattern = &self.cron.pattern;
        let hours: Vec<u32> = (0..24).filter(|hour| pattern.hour_match(*hour).unwrap_or(false)).collect();
        let minutes: Vec<u32> = (0..60).filter(|minute| pattern.minute_match(*minute).unwrap_or(false)).collect();
        let seconds: Vec<u32> = (0..60).filter(|second| pattern.second_match(*second).unwrap_or(false)).collect();
        let (mut ends, mut shortest) = (None, DAY);
        for hour in &hours {
            for minute in &minutes {
                for second in &seconds {
                    let time = hour * 3600 + minute * 60 + second;
                    let (first, last) = ends.unwrap_or((time, time));
                    if last < time {
                        shortest = shortest.min(time - last);
                    }
                    ends = Some((first, time));
                }
            }
        }
        let over_night = ends.map_or(DAY, |(first, last)| DAY - last + first);
        u64::from(shortest.min(over_night)) * 1_000
    }
}

impl fmt::Debug for CronRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CronRule").field(&self.text).finish()
    }
}

/// Whether a field can be read, by its number in [`FIELDS`].
fn can_read(number: usize, part: &str) -> bool {
    let mut alone = ["*"; FIELD_COUNT];
    alone[number] = part;
    has_own_words(part, FIELDS[number].words) && read(&alone.join(" ")).is_some()
}

/// Whether each part of a field has a value, and only words of this field. The parser accepts the names of days and
/// months in every field, and skips empty parts.
fn has_own_words(part: &str, words: &[&str]) -> bool {
    let is_sign = |c: char| c.is_ascii_digit() || "*?LW".contains(c);
    let part = part.to_ascii_uppercase();
    part.trim_start_matches('+').split([',', '-', '/', '#']).all(|value| {
        let is_word = words.contains(&value) || value.strip_suffix('L').is_some_and(|day| words.contains(&day));
        is_word || !value.is_empty() && value.chars().all(is_sign)
    })
}

fn read(with_seconds: &str) -> Option<Cron> {
    CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build().parse(with_seconds).ok()
}

/// Whether a pattern matches at least once. A search in the last years that the parser knows is the shortest.
fn matches_ever(cron: &Cron) -> bool {
    let year = i16::try_from(YEAR_UPPER_LIMIT - CALENDAR_YEARS).unwrap_or(1970);
    let start = DateTime::new(year, 1, 1, 0, 0, 0, 0);
    start.is_ok_and(|start| cron.find_next_occurrence(&start, true).is_ok())
}

/// When the wall clock first shows this time: the end of the gap, if it skips the time.
fn first_instant(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    let found = zone.to_ambiguous_timestamp(local);
    match found.offset() {
        // With the offset after the gap, the time is before the gap.
        AmbiguousOffset::Gap { after, .. } => {
            let before_gap = after.to_timestamp(local).ok()?;
            zone.following(before_gap).next().map(|change| change.timestamp())
        }
        _ => found.earlier().ok(),
    }
}

fn timestamp(ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

fn ms_of(at: Timestamp) -> Option<u64> {
    u64::try_from(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZoneDatabase;

    fn rule(text: &str) -> CronRule {
        CronRule::parse(text, text.split(' ').count() == 6).unwrap()
    }

    fn fault(text: &str) -> String {
        CronRule::parse(text, text.split(' ').count() == 6).unwrap_err().to_string()
    }

    /// Compares the ticks after the first of these times with the others. Times are in UTC, without their `:00Z`.
    fn assert_ticks(text: &str, zone: &str, times: &[&str]) {
        let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
        let ms = |time: &str| ms_of(format!("{time}:00Z").parse().unwrap()).unwrap();
        let rule = rule(text);
        let ticks = successors(Some(ms(times[0])), |after| rule.next_after(&zone, *after));
        let shown = |at: u64| timestamp(at).unwrap().to_string().trim_end_matches(":00Z").to_owned();
        let ticks: Vec<String> = ticks.take(times.len()).map(shown).collect();
        assert_eq!(ticks, times, "{text}");
    }

    #[test]
    fn a_wrong_field_is_named_with_its_position() {
        let text = "cron field 2 (hour) is \"25\": it must be 0 to 23, or '*', lists, ranges and steps of them; \
                    use a value like \"9-17\"";
        assert_eq!(fault("0 25 * * *"), text);
        for (text, field) in [
            ("60 0 * * *", "1 (minute)"),
            ("5/15 0 * * *", "1 (minute)"),
            ("1,,2 0 * * *", "1 (minute)"),
            ("MON 0 * * *", "1 (minute)"),
            ("0 JAN * * *", "2 (hour)"),
            ("0 0 0 * *", "3 (day of month)"),
            ("0 0 MON * *", "3 (day of month)"),
            ("0 0 1 13 *", "4 (month)"),
            ("0 0 1 1JAN *", "4 (month)"),
            ("0 0 1 MON *", "4 (month)"),
            ("0 0 * * 8", "5 (day of week)"),
            ("0 0 * * JUL", "5 (day of week)"),
            ("0 0 * * FRI-MON", "5 (day of week)"),
            ("0 0 * * \u{17f}UN", "5 (day of week)"),
            ("60 0 0 * * *", "1 (second)"),
            ("0 0 0 * 0 *", "5 (month)"),
        ] {
            assert!(fault(text).starts_with(&format!("cron field {field} is ")), "{text}: {}", fault(text));
        }
        assert_eq!(fault("60 25 * * *").lines().count(), 2);
    }

    #[test]
    fn a_pattern_has_its_number_of_fields() {
        let fix = "write minute, hour, day of month, month, day of week, with spaces between them";
        let text = format!("cron is \"@daily\": it must have 5 fields, at most 1000 bytes; {fix}");
        assert_eq!(fault("@daily"), text);
        let six = CronRule::parse("* * * * * *", false).unwrap_err();
        assert!(six.to_string().ends_with("use Schedule::cron_with_seconds for a pattern that begins with seconds"));
        assert!(CronRule::parse("* * * * *", true).is_err());
        assert!(CronRule::parse(&format!("{} * * * *", "1,".repeat(600) + "1"), false).is_err());
        assert_eq!(rule("0 9 * * mon-FRI").text(), "0 9 * * mon-FRI");
        assert_eq!(CronRule::parse("  0\t9 * *   MON ", false).unwrap().text(), "0 9 * * MON");
    }

    #[test]
    fn a_pattern_that_never_matches_is_refused() {
        for text in ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 31 9 *"] {
            assert!(fault(text).contains("it must match some day"), "{text}: {}", fault(text));
        }
    }

    #[test]
    fn a_fixed_time_that_the_clock_skips_runs_after_the_gap() {
        let berlin = ["2026-03-28T12:00", "2026-03-29T01:00", "2026-03-30T00:30"];
        assert_ticks("30 2 * * *", "Europe/Berlin", &berlin);
        let york = ["2026-03-07T12:00", "2026-03-08T07:00", "2026-03-09T06:30"];
        assert_ticks("30 2 * * *", "America/New_York", &york);
        let howe = ["2026-10-03T00:00", "2026-10-03T15:30", "2026-10-04T15:15"];
        assert_ticks("15 2 * * *", "Australia/Lord_Howe", &howe);
        // The gap ends at midnight, on a day that the pattern does not name.
        let nuuk = ["2026-03-27T12:00", "2026-03-29T01:00", "2026-04-05T00:30"];
        assert_ticks("30 23 * * SAT", "America/Nuuk", &nuuk);
    }

    #[test]
    fn a_fixed_time_that_repeats_runs_at_the_first() {
        let berlin = ["2026-10-24T12:00", "2026-10-25T00:30", "2026-10-26T01:30"];
        assert_ticks("30 2 * * *", "Europe/Berlin", &berlin);
        let between = ["2026-10-25T01:15", "2026-10-26T01:30"];
        assert_ticks("30 2 * * *", "Europe/Berlin", &between);
        let york = ["2026-10-31T12:00", "2026-11-01T05:30", "2026-11-02T06:30"];
        assert_ticks("30 1 * * *", "America/New_York", &york);
        let howe = ["2026-04-04T00:00", "2026-04-04T14:45", "2026-04-05T15:15"];
        assert_ticks("45 1 * * *", "Australia/Lord_Howe", &howe);
    }

    #[test]
    fn other_patterns_run_whenever_the_wall_clock_matches() {
        let skipped = ["2026-03-28T22:59", "2026-03-28T23:00", "2026-03-29T02:00", "2026-03-29T04:00"];
        assert_ticks("0 */2 * * *", "Europe/Berlin", &skipped);
        let repeated = ["2026-10-24T22:00", "2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T03:00"];
        assert_ticks("0 */2 * * *", "Europe/Berlin", &repeated);
        let york = ["2026-11-01T05:00", "2026-11-01T05:30", "2026-11-01T06:00", "2026-11-01T06:30"];
        assert_ticks("*/30 * * * *", "America/New_York", &york);
        let howe = ["2026-10-03T15:00", "2026-10-03T15:15", "2026-10-03T15:30", "2026-10-03T15:45"];
        assert_ticks("*/15 * * * *", "Australia/Lord_Howe", &howe);
    }

    #[test]
    fn leap_days_and_last_days_are_found() {
        assert_ticks("0 0 29 2 *", "UTC", &["2026-01-01T00:00", "2028-02-29T00:00", "2032-02-29T00:00"]);
        assert_ticks("0 0 29 2 *", "UTC", &["2096-03-01T00:00", "2104-02-29T00:00"]);
        assert_ticks("0 0 L * *", "UTC", &["2026-02-01T00:00", "2026-02-28T00:00", "2026-03-31T00:00"]);
        assert_ticks("0 9 * * FRIL", "UTC", &["2026-11-01T00:00", "2026-11-27T09:00", "2026-12-25T09:00"]);
    }

    #[test]
    fn no_time_is_out_of_range() {
        let every_second = rule("* * * * * *");
        let fixed = rule("0 0 * * *");
        for after in [0, 1, 999, 253_402_207_200_999, 253_402_300_799_999, u64::MAX - 1, u64::MAX] {
            let zone = TimeZoneDatabase::bundled().get("Europe/Berlin").unwrap();
            for rule in [&every_second, &fixed] {
                assert!(rule.next_after(&zone, after).is_none_or(|next| next > after));
                let _ = rule.back(&zone, after, 3);
            }
        }
        assert_eq!(every_second.next_after(&TimeZone::UTC, 1_999), Some(2_000));
        assert_eq!(every_second.next_after(&TimeZone::UTC, 2_000), Some(3_000));
    }

    #[test]
    fn the_shortest_gap_is_found_within_a_day_and_over_night() {
        let gap = |text: &str| rule(text).shortest_gap_ms() / 1_000;
        assert_eq!((gap("* * * * * *"), gap("*/20 * * * * *"), gap("* * * * *")), (1, 20, 60));
        assert_eq!((gap("0,5,50 * * * *"), gap("0 1,23 * * *"), gap("0 9 * * MON")), (300, 7_200, 86_400));
    }
}
