//! What is known about the lanes of a task: the keys of its jobs, their limits and who holds their jobs.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::limits::{self, LimitReached};
use super::page::holder;
use crate::backend::lanes::{FULL, LanePage, RESTING, StoredLane, StoredLaneDetail};
use crate::enum_str::names;
use crate::job::id::JobId;
use crate::unix_time::{as_ms, at_ms, ms_since_1970};
use crate::worker_id::WorkerId;

/// Whether a key may start jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LaneState {
    /// It waits for its turn, or none of its jobs waits.
    Ready,
    /// It rests until a time: its rate is used up, or a handler was rate limited.
    Resting,
    /// As many of its jobs run as its limit allows, or it is paused.
    Full,
}

names!(LaneState, "state of a lane", { Ready = "ready", Resting = "resting", Full = "full" });

/// The lane of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lane {
    /// The key. `None` for the jobs without one.
    pub key: Option<String>,
    /// Whether the key may start jobs. It is what the last claim found.
    pub state: LaneState,
    /// Why none of its jobs may start: since when it is full or paused, or until when it rests.
    pub limit: Option<LimitReached>,
    /// How many of its jobs wait. Jobs that were handed back count from the next claim on.
    pub waiting: u64,
    /// How many of its jobs workers hold. 0 if the key has no limits.
    pub held: u64,
    /// How many of its jobs may run. `None`: any number.
    pub running: Option<u64>,
    /// How many of its jobs may start within a window. `None`: any number.
    pub rate: Option<LaneRate>,
    /// How many starts it gets while a key of weight 1 gets one.
    pub weight: u64,
    /// Its settings that were written at run time.
    pub own: Option<LaneSettings>,
}

/// How many jobs of a key may start within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneRate {
    /// How many.
    pub starts: u64,
    /// The window. That of a paced rate is a part of the declared one.
    #[serde(rename = "window_ms", serialize_with = "as_ms")]
    pub window: Duration,
}

/// The settings of a key that were written at run time, see [`Lanes`](crate::Lanes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneSettings {
    /// Whether it has limits of its own.
    pub has_limits: bool,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Who changed them last.
    pub by: String,
}

/// The lane of one key, and what its next job waits for. See [`Lanes::get`](crate::Lanes::get).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneDetail {
    /// The lane.
    #[serde(flatten)]
    pub lane: Lane,
    /// How many keys have their turn before it.
    pub ahead: u64,
    /// Who holds its jobs while it has limits: up to 20 of them.
    pub holders: Vec<LaneHolder>,
}

/// A held job of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneHolder {
    /// The job.
    pub job: JobId,
    /// The worker that holds it.
    pub worker: WorkerId,
    /// Since when.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
}

/// The lanes of a task. See [`Lanes::list`](crate::Lanes::list).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneReport {
    /// When it was read, by the server's clock.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// How many keys wait for their turn.
    pub ready: u64,
    /// How many keys rest.
    pub resting: u64,
    /// How many keys are full or paused.
    pub full: u64,
    /// Full ones first, then resting ones, then those that are next.
    pub lanes: Vec<Lane>,
}

impl LaneReport {
    pub(crate) fn new(now_ms: u64) -> LaneReport {
        LaneReport { as_of: at_ms(now_ms), ready: 0, resting: 0, full: 0, lanes: Vec::new() }
    }

    pub(crate) fn count(&mut self, [ready, resting, full]: [u64; 3]) {
        self.ready += ready;
        self.resting += resting;
        self.full += full;
    }

    pub(crate) fn extend(&mut self, page: LanePage, now_ms: u64) {
        self.lanes.extend(page.lanes.into_iter().map(|lane| lane_of(lane, &page.per_key, now_ms)));
    }
}

/// Reads a lane. `per_key` is the option of this name.
fn lane_of(stored: StoredLane, per_key: &str, now_ms: u64) -> Lane {
    let own = StoredSettings::parse(&stored.own);
    let words = own.as_ref().and_then(|own| own.limits).unwrap_or(per_key);
    let (running, rate) = limits::numbers(words).unwrap_or_default();
    let limit = match own.as_ref().and_then(|own| own.paused_at_ms) {
        Some(at_ms_) => Some(LimitReached::KeyPaused { since: at_ms(at_ms_) }),
        None => LimitReached::of_key(&stored.turn, now_ms),
    };
    let turn: f64 = stored.turn.parse().unwrap_or(0.0);
    let state = match turn {
        turn if turn >= FULL as f64 => LaneState::Full,
        turn if turn >= RESTING as f64 => LaneState::Resting,
        _ => LaneState::Ready,
    };
    Lane {
        key: Some(stored.key).filter(|key| !key.is_empty()),
        state,
        limit,
        waiting: stored.waiting,
        held: stored.held,
        running,
        rate: rate.map(|(starts, window)| LaneRate { starts, window }),
        weight: own.as_ref().map_or(1, |own| own.weight),
        own: own.map(|own| LaneSettings {
            has_limits: own.limits.is_some(),
            is_paused: own.paused_at_ms.is_some(),
            by: own.by.to_owned(),
        }),
    }
}

pub(crate) fn detail_of(stored: StoredLaneDetail, now_ms: u64) -> LaneDetail {
    let holders = stored.holders.into_iter().filter_map(|(job, token)| {
        let (worker, fence) = holder(&token)?;
        Some(LaneHolder { job: JobId::from_wire(job), worker, since: at_ms(fence / 1000) })
    });
    let holders = holders.collect();
    LaneDetail { lane: lane_of(stored.lane, &stored.per_key, now_ms), ahead: stored.ahead, holders }
}

/// The settings of a key, as `lua/lib/own_settings.lua` has them.
struct StoredSettings<'a> {
    limits: Option<&'a str>,
    weight: u64,
    paused_at_ms: Option<u64>,
    by: &'a str,
}

impl StoredSettings<'_> {
    fn parse(words: &str) -> Option<StoredSettings<'_>> {
        let (at, _) = words.match_indices(' ').nth(2)?;
        let (limits, rest) = words.split_at(at);
        let mut rest = rest.trim_start().splitn(3, ' ');
        let (weight, paused, by) = (rest.next()?, rest.next()?, rest.next().unwrap_or_default());
        Some(StoredSettings {
            limits: Some(limits).filter(|limits| !limits.starts_with('-')),
            weight: weight.parse().ok()?,
            paused_at_ms: paused.parse().ok().filter(|at_ms| *at_ms > 0),
            by,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(turn: &str, own: &str) -> Lane {
        let [key, turn, own] = ["acme", turn, own].map(str::to_owned);
        lane_of(StoredLane { key, turn, waiting: 3, held: 2, own }, "2 60 1000000", 1_000)
    }

    #[test]
    fn settings_of_a_key_come_before_those_of_the_task() {
        let of_task = lane("7", "");
        let rate = |starts, secs| Some(LaneRate { starts, window: Duration::from_secs(secs) });
        assert_eq!((of_task.running, of_task.rate, of_task.weight, of_task.own), (Some(2), rate(60, 1), 1, None));
        let own = lane("7", "0 5 2000000 3 0 ada l.");
        assert_eq!((own.running, own.rate, own.weight, own.limit), (None, rate(5, 2), 3, None));
        let expected = LaneSettings { has_limits: true, is_paused: false, by: "ada l.".to_owned() };
        assert_eq!(own.own, Some(expected));
        let paused = lane("6000000000000900", "- - - 1 700 ada");
        assert_eq!((paused.running, paused.state), (Some(2), LaneState::Full));
        assert_eq!(paused.limit, Some(LimitReached::KeyPaused { since: at_ms(700) }));
    }

    #[test]
    fn settings_that_cannot_be_read_are_those_of_the_task() {
        for own in ["1 2", "1 2 3 x 0 ada", "x"] {
            assert_eq!((lane("7", own).running, lane("7", own).own), (Some(2), None), "{own}");
        }
    }
}
