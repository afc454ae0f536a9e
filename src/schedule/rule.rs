//! The rule of a schedule: when its ticks come.

use std::fmt;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::cron::CronRule;
use super::policy::{Missed, Overlap, short};
use super::zone::Zone;
use crate::error::Error;
use crate::limits::LONGEST;
use crate::unix_time::{at_ms, ms_of, to_ms};

/// The shortest gap of a schedule, and the shortest grace.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// No tick is at this time or later: in every zone the year before it has four digits.
const END_MS: u64 = 253_402_207_200_000;

/// When jobs are created again and again, and what happens to ticks that cannot create theirs.
///
/// A tick is a time at which the schedule creates a job. Durations are kept in whole milliseconds, rounded up.
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use heartline::{Overlap, Schedule};
/// # fn main() -> heartline::Result<()> {
/// let poll = Schedule::every(Duration::from_secs(30)).overlap(Overlap::Queue);
/// let nightly = Schedule::cron("30 2 * * *")?.tz("Europe/Berlin")?;
/// let midnight = SystemTime::UNIX_EPOCH + Duration::from_secs(1_798_761_600);
/// let next = nightly.preview(midnight).next();
/// assert_eq!(next, Some(midnight + Duration::from_secs(90 * 60)));
/// # assert_eq!(poll.to_string(), "every 30s");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Schedule {
    pub(super) pattern: Pattern,
    pub(super) zone: Zone,
    pub(crate) jitter: Duration,
    pub(crate) overlap: Overlap,
    pub(crate) missed: Missed,
    pub(crate) grace: Duration,
    pub(crate) from_ms: Option<u64>,
    pub(crate) until_ms: Option<u64>,
}

/// What the ticks follow.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    Cron(CronRule),
    Every(Duration),
}

impl Schedule {
    /// Ticks when the wall clock of a zone matches a cron pattern.
    ///
    /// The five fields are minute, hour, day of month, month and day of week, as in Vixie cron. If both fields of days
    /// are set, one of them must match; with `+` before the day of week, both must. A pattern with one fixed minute and
    /// hour runs once a day. If the clock skips that time, it runs at the end of the gap; if the time repeats, at the
    /// first occurrence. Any other pattern runs whenever the wall clock matches.
    ///
    /// # Errors
    /// `Config` for each field that cannot be read, with its position, or for a pattern that matches no day.
    pub fn cron(text: &str) -> Result<Schedule, Error> {
        Ok(Schedule::of(Pattern::Cron(CronRule::parse(text, false)?)))
    }

    /// The same with a field for seconds before the other five.
    ///
    /// # Errors
    /// As [`cron`](Schedule::cron).
    pub fn cron_with_seconds(text: &str) -> Result<Schedule, Error> {
        Ok(Schedule::of(Pattern::Cron(CronRule::parse(text, true)?)))
    }

    /// Ticks at equal gaps of 1 s to 10 years.
    ///
    /// They are counted from 1970, or from [`from`](Schedule::from), so a restart moves none. The gap is checked when the
    /// schedule is declared or put. Real time counts: a zone that changes its clock has no effect.
    pub fn every(gap: Duration) -> Schedule {
        Schedule::of(Pattern::Every(whole(gap)))
    }

    pub(super) fn of(pattern: Pattern) -> Schedule {
        Schedule {
            pattern,
            zone: Zone::utc(),
            jitter: Duration::ZERO,
            overlap: Overlap::default(),
            missed: Missed::default(),
            grace: Duration::from_secs(60),
            from_ms: None,
            until_ms: None,
        }
    }

    /// The time zone of a cron pattern, by its IANA name. Defaults to UTC.
    ///
    /// The rules of all zones are in the binary, so that all workers of one build agree.
    ///
    /// # Errors
    /// `Config` for an unknown zone. It names the nearest one.
    pub fn tz(mut self, zone: &str) -> Result<Schedule, Error> {
        self.zone = Zone::named(zone)?;
        Ok(self)
    }

    /// Delays each tick by a part of this time, so that many schedules do not fire together.
    ///
    /// The delay depends only on the name of the schedule and the tick: all processes compute the same. It must be below
    /// the shortest gap between two ticks. Defaults to none.
    pub fn jitter(mut self, most: Duration) -> Schedule {
        self.jitter = whole(most);
        self
    }

    /// What a tick does while the last job has not ended. Defaults to [`Overlap::Skip`].
    pub fn overlap(mut self, overlap: Overlap) -> Schedule {
        self.overlap = overlap;
        self
    }

    /// What happens to ticks that no worker fired in time. Defaults to [`Missed::ONCE`].
    pub fn missed(mut self, missed: Missed) -> Schedule {
        self.missed = match missed {
            Missed::Once { within } => Missed::Once { within: whole(within) },
            other => other,
        };
        self
    }

    /// How late a tick may fire, after its jitter, before it is missed. 1 s to 1 day, defaults to 60 s.
    pub fn grace(mut self, grace: Duration) -> Schedule {
        self.grace = whole(grace);
        self
    }

    /// The first time that may be a tick. Gaps are counted from it.
    pub fn from(mut self, time: SystemTime) -> Schedule {
        self.from_ms = Some(ms_of(time));
        self
    }

    /// The time from which there are no more ticks.
    pub fn until(mut self, time: SystemTime) -> Schedule {
        self.until_ms = Some(ms_of(time));
        self
    }

    /// The ticks after this time, without their jitter. Needs no Redis, so a test can assert on it.
    pub fn preview(&self, after: SystemTime) -> Preview {
        Preview { schedule: self.clone(), after_ms: ms_of(after) }
    }

    /// The first tick after this time.
    pub(crate) fn next_after(&self, after_ms: u64) -> Option<u64> {
        let end_ms = self.end_ms();
        if after_ms >= end_ms {
            return None;
        }
        let next = match &self.pattern {
            Pattern::Cron(cron) => {
                // A tick at `from` itself counts.
                let after_ms = self.from_ms.map_or(after_ms, |from| after_ms.max(from.saturating_sub(1)));
                cron.next_after(self.zone.times(), after_ms)
            }
            Pattern::Every(gap) => {
                let (start, gap) = (self.from_ms.unwrap_or(0), gap_ms(*gap));
                match after_ms.checked_sub(start) {
                    Some(since) => (since / gap + 1).checked_mul(gap).and_then(|ahead| start.checked_add(ahead)),
                    None => Some(start),
                }
            }
        };
        next.filter(|next| *next < end_ms)
    }

    /// When a tick is to be fired: its time, and the jitter of this tick of the schedule of this name.
    ///
    /// The hash must never change: processes of several versions compute it.
    pub(crate) fn at(&self, name: &str, due_ms: u64) -> u64 {
        let most = to_ms(self.jitter);
        if most == 0 {
            return due_ms;
        }
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{name}@{due_ms}").as_bytes());
        due_ms.saturating_add(hash.as_u128() as u64 % most.saturating_add(1))
    }

    /// The shortest time between two ticks. A zone that changes its clock may make it shorter once.
    pub(crate) fn shortest_gap_ms(&self) -> u64 {
        match &self.pattern {
            Pattern::Cron(cron) => cron.shortest_gap_ms(),
            Pattern::Every(gap) => gap_ms(*gap),
        }
    }

    /// The gap between all ticks, if it is always the same.
    pub(super) fn gap_ms(&self) -> Option<u64> {
        match &self.pattern {
            Pattern::Cron(_) => None,
            Pattern::Every(gap) => Some(gap_ms(*gap)),
        }
    }

    /// No tick is at this time or later.
    pub(super) fn end_ms(&self) -> u64 {
        self.until_ms.unwrap_or(END_MS).min(END_MS)
    }

    /// A time shortly before the last `count` ticks up to this time; `None` if it is not known.
    pub(super) fn back(&self, from_ms: u64, count: usize) -> Option<u64> {
        match &self.pattern {
            Pattern::Cron(cron) => cron.back(self.zone.times(), from_ms, count),
            Pattern::Every(_) => None,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Cron(cron) => write!(f, "{} {}", cron.text(), self.zone.name()),
            Pattern::Every(gap) => write!(f, "every {}", short(*gap)),
        }
    }
}

/// The ticks of a schedule, from [`Schedule::preview`].
#[derive(Clone, Debug)]
pub struct Preview {
    schedule: Schedule,
    after_ms: u64,
}

impl Iterator for Preview {
    type Item = SystemTime;

    fn next(&mut self) -> Option<SystemTime> {
        self.after_ms = self.schedule.next_after(self.after_ms)?;
        Some(at_ms(self.after_ms))
    }
}

fn whole(time: Duration) -> Duration {
    Duration::from_millis(to_ms(time))
}

/// A gap within its bounds, so that no sum or quotient of it fails.
fn gap_ms(gap: Duration) -> u64 {
    to_ms(gap.clamp(SECOND, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn ticks(schedule: &Schedule, after_ms: u64) -> Vec<u64> {
        schedule.preview(at_ms(after_ms)).take(4).map(ms_of).collect()
    }

    #[test]
    fn gaps_are_counted_from_1970_or_from_a_time() {
        let poll = Schedule::every(seconds(30));
        assert_eq!(ticks(&poll, 0), [30_000, 60_000, 90_000, 120_000]);
        assert_eq!(ticks(&poll, 59_999), [60_000, 90_000, 120_000, 150_000]);
        let bounded = poll.from(at_ms(100_005)).until(at_ms(190_005));
        assert_eq!(ticks(&bounded, 0), [100_005, 130_005, 160_005]);
        assert_eq!(ticks(&bounded, 100_005), [130_005, 160_005]);
        assert_eq!(ticks(&bounded, 190_000), Vec::<u64>::new());
    }

    #[test]
    fn a_pattern_is_bounded_too() {
        let minutes = Schedule::cron("* * * * *").unwrap();
        let bounded = minutes.from(at_ms(120_000)).until(at_ms(240_000));
        assert_eq!(ticks(&bounded, 0), [120_000, 180_000]);
        let seconds = Schedule::cron_with_seconds("*/30 * * * * *").unwrap().from(at_ms(60_001));
        assert_eq!(ticks(&seconds, 0), [90_000, 120_000, 150_000, 180_000]);
    }

    #[test]
    fn a_schedule_shows_its_rule() {
        let nightly = Schedule::cron("30  2 * * *").unwrap().tz("europe/berlin").unwrap();
        assert_eq!(nightly.to_string(), "30 2 * * * Europe/Berlin");
        assert_eq!(Schedule::cron("0 9 * * MON").unwrap().to_string(), "0 9 * * MON UTC");
        assert_eq!(Schedule::every(seconds(7_200)).to_string(), "every 2h");
    }

    #[test]
    fn a_rule_that_was_not_checked_has_ticks_within_bounds() {
        for gap in [Duration::ZERO, Duration::from_nanos(1), SECOND, LONGEST, Duration::MAX] {
            for (from, after) in [(0, 0), (u64::MAX, 5), (5, u64::MAX), (0, END_MS - 1), (7, END_MS - 2_000)] {
                let schedule = Schedule::every(gap).from(at_ms(from)).jitter(Duration::MAX);
                let next = schedule.next_after(after);
                assert!(next.is_none_or(|next| next > after && next < END_MS), "{gap:?} {from} {after}: {next:?}");
                assert!(schedule.at("a", after) >= after);
            }
        }
    }

    #[test]
    fn the_jitter_of_a_tick_is_the_same_in_every_process() {
        let hourly = Schedule::cron("0 * * * *").unwrap();
        assert_eq!(hourly.at("nightly", 3_600_000), 3_600_000);
        let spread = hourly.jitter(seconds(600));
        // Other processes compute it too: it must never change.
        assert_eq!(spread.at("nightly", 3_600_000), 3_600_000 + 328_577);
        assert_eq!(spread.at("nightly", 7_200_000), 7_200_000 + 364_090);
        let all = (1..1_000).map(|hour| spread.at("a", hour * 3_600_000) - hour * 3_600_000);
        let (least, most) = all.fold((u64::MAX, 0), |(least, most), jitter| (least.min(jitter), most.max(jitter)));
        assert!(least < 10_000 && most > 590_000 && most <= 600_000, "{least} {most}");
    }
}
