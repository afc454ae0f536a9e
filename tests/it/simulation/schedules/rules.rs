//! The rules of the histories, and their ticks as a plain calendar has them: nothing here is taken from the crate.

use std::sync::OnceLock;
use std::time::Duration;

use heartline::{Missed, Overlap, Schedule};

const MINUTE: u64 = 60_000;
pub const HOUR: u64 = 60 * MINUTE;

/// Every tick of a pattern, and every change of a clock, is at a multiple of this.
const QUARTER: u64 = 15 * MINUTE;

/// A zone with the one change of its clock that the histories see.
pub struct Zone {
    name: &'static str,
    /// When its clock changes, ms.
    pub change: u64,
    /// What its clock is ahead of UTC before and after that, in minutes.
    ahead: [i64; 2],
}

/// A clock that is set back, one that is set forward, and one that is set forward by half an hour.
pub static ZONES: [Zone; 3] = [
    Zone { name: "Europe/Berlin", change: 1_792_890_000_000, ahead: [120, 60] },
    Zone { name: "America/New_York", change: 1_772_953_200_000, ahead: [-300, -240] },
    Zone { name: "Australia/Lord_Howe", change: 1_791_041_400_000, ahead: [630, 660] },
];

impl Zone {
    /// The day and the minute that the clock shows.
    fn shows(&self, at: u64) -> (i64, i64) {
        let minutes = (at / MINUTE) as i64 + self.ahead[usize::from(at >= self.change)];
        (minutes.div_euclid(1440), minutes.rem_euclid(1440))
    }
}

#[derive(Clone, Copy)]
enum Ticks {
    Every(u64),
    /// Whenever the minute of the day is a multiple of this.
    Minutes(i64),
    /// Once a day, as soon as the clock shows at least this minute.
    Daily(i64),
}

/// A pattern, as the crate knows it and as the model does.
struct Base {
    schedule: Schedule,
    ticks: Ticks,
    jitter: u64,
    zone: &'static Zone,
}

/// The bases of one zone.
const PER_ZONE: usize = 6;

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let of_zone = |zone: &'static Zone| {
            let every = |seconds| (Schedule::every(Duration::from_secs(seconds)), Ticks::Every(1000 * seconds), 0);
            let cron = |text, ticks| (Schedule::cron(text).unwrap().tz(zone.name).unwrap(), ticks, 0);
            let spread = Schedule::every(Duration::from_secs(600)).jitter(Duration::from_secs(300));
            let all: [_; PER_ZONE] = [
                every(7),
                every(3600),
                (spread, Ticks::Every(600_000), 300_000),
                cron("*/15 * * * *", Ticks::Minutes(15)),
                cron("0 */2 * * *", Ticks::Minutes(120)),
                cron("15 2 * * *", Ticks::Daily(135)),
            ];
            all.map(|(schedule, ticks, jitter)| Base { schedule, ticks, jitter, zone })
        };
        ZONES.iter().flat_map(of_zone).collect()
    })
}

/// A rule with an input: two equal ones are the same to the crate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    base: usize,
    pub overlap: Overlap,
    pub missed: Missed,
    pub grace: u64,
    pub input: u8,
}

impl Rule {
    pub fn any(rng: &mut fastrand::Rng, zone: usize) -> Rule {
        let brief = Missed::Once { within: Duration::from_secs(600) };
        let missed = [Missed::ONCE, Missed::ONCE, brief, Missed::Skip, Missed::All(3), Missed::All(60)];
        let overlap = [Overlap::Skip, Overlap::Queue, Overlap::Replace, Overlap::Allow];
        Rule {
            base: PER_ZONE * zone + rng.usize(..PER_ZONE),
            overlap: overlap[rng.usize(..overlap.len())],
            missed: missed[rng.usize(..missed.len())],
            grace: [60_000, 60_000, 10_000, 300_000][rng.usize(..4)],
            input: rng.u8(b'1'..=b'2'),
        }
    }

    pub fn schedule(&self) -> Schedule {
        let schedule = bases()[self.base].schedule.clone().overlap(self.overlap).missed(self.missed);
        schedule.grace(Duration::from_millis(self.grace))
    }

    /// The longest delay of a tick.
    pub fn jitter(&self) -> u64 {
        bases()[self.base].jitter
    }

    pub fn is_tick(&self, at: u64) -> bool {
        let Base { ticks, zone, .. } = &bases()[self.base];
        match *ticks {
            Ticks::Every(gap) => at.is_multiple_of(gap),
            _ if !at.is_multiple_of(QUARTER) => false,
            Ticks::Minutes(step) => zone.shows(at).1 % step == 0,
            Ticks::Daily(minute) => {
                let (day, now) = zone.shows(at);
                let was_reached = |ago: u64| {
                    let (before, then) = zone.shows(at - ago * QUARTER);
                    before == day && then >= minute
                };
                now >= minute && !(1..=12).any(was_reached)
            }
        }
    }

    /// A step of time within which there is at most one tick, on its end.
    fn step(&self) -> u64 {
        if let Ticks::Every(gap) = bases()[self.base].ticks { gap } else { QUARTER }
    }

    pub fn next_after(&self, after: u64) -> u64 {
        let step = self.step();
        let mut at = (after / step + 1) * step;
        while !self.is_tick(at) {
            at += step;
        }
        at
    }

    /// The number of ticks after `after`, up to `until`.
    pub fn count(&self, after: u64, until: u64) -> u64 {
        if let Ticks::Every(gap) = bases()[self.base].ticks {
            return (until / gap).saturating_sub(after / gap);
        }
        let (first, last) = (after / QUARTER + 1, until / QUARTER);
        (first..=last).filter(|quarter| self.is_tick(quarter * QUARTER)).count() as u64
    }

    /// The newest ticks from `due` to `until`, at most this many, oldest first.
    pub fn newest(&self, due: u64, until: u64, most: usize) -> Vec<u64> {
        let (step, mut ticks) = (self.step(), Vec::new());
        let mut at = until / step * step;
        while at >= due && ticks.len() < most {
            if self.is_tick(at) {
                ticks.push(at);
            }
            at -= step;
        }
        ticks.reverse();
        ticks
    }
}
