//! Describes lanes: the limits of a key, and why its jobs wait.

use std::time::SystemTime;

use super::super::lane::{Lane, LaneDetail};
use super::super::limits::LimitReached;
use super::super::tasks::LaneCounts;
use super::super::text::{exact, many, shown, span};

/// How many holders are named.
const NAMED: usize = 3;

/// The limits of a key and its weight, if it has any.
#[must_use]
pub fn lane_limits(lane: &Lane) -> String {
    let running = lane.running.map(|most| format!("{most} running"));
    let rate = lane.rate.map(|rate| format!("{} in {}", rate.starts, span(rate.window)));
    let weight = (lane.weight != 1).then(|| format!("weight {}", lane.weight));
    running.into_iter().chain(rate).chain(weight).collect::<Vec<_>>().join(", ")
}

/// Whether the key may start jobs, and if not, since when or until when.
#[must_use]
pub fn lane_state(lane: &Lane, now: SystemTime) -> String {
    match lane.limit {
        Some(LimitReached::KeyFull { since }) => format!("full since {}", exact(since, now)),
        Some(LimitReached::KeyPaused { since }) => format!("paused since {}", exact(since, now)),
        Some(LimitReached::KeyResting { until }) => format!("rests until {}", exact(until, now)),
        _ => lane.state.to_string(),
    }
}

/// How many keys of a task are in each state. Paused ones are among the full ones.
#[must_use]
pub fn lane_counts(counts: LaneCounts, now: SystemTime) -> String {
    let since = counts.full_since.map(|since| format!(", the first since {}", exact(since, now)));
    let LaneCounts { ready, resting, full, .. } = counts;
    format!("{ready} in turn, {resting} resting, {full} full or paused{}", since.unwrap_or_default())
}

/// Why the waiting jobs of a key do not run.
#[must_use]
pub fn waits_because(found: &LaneDetail, now: SystemTime) -> String {
    let lane = &found.lane;
    let key = lane.key.as_deref().map_or_else(|| "(no key)".to_owned(), shown);
    match lane.limit {
        Some(LimitReached::KeyPaused { since }) => {
            let by = lane.own.as_ref().map_or("", |own| &own.by);
            format!("{key} is paused since {} by {}", exact(since, now), shown(by))
        }
        Some(LimitReached::KeyFull { .. }) => {
            let of = lane.running.map_or_else(String::new, |most| format!(" of {most}"));
            format!("{key} is full: {}{of} held{}", lane.held, holders(found, now))
        }
        Some(LimitReached::KeyResting { until }) => {
            let rate = lane.rate.map(|rate| format!(" ({} in {})", rate.starts, span(rate.window)));
            format!("{key} rests until {}{}", exact(until, now), rate.unwrap_or_default())
        }
        _ if found.ahead == 0 => format!("{key} is next in turn"),
        _ => format!("{key} has its turn after {}", many(found.ahead, "other key")),
    }
}

/// Who holds jobs of the key, and for how long.
fn holders(found: &LaneDetail, now: SystemTime) -> String {
    let named = found.holders.iter().take(NAMED).map(|held| {
        let long = span(now.duration_since(held.since).unwrap_or_default());
        format!("{} on {} for {long}", shown(held.job.as_str()), held.worker)
    });
    let named: Vec<String> = named.collect();
    match (named.is_empty(), found.lane.held.saturating_sub(named.len() as u64)) {
        (true, _) => String::new(),
        (false, 0) => format!(", by {}", named.join(", ")),
        (false, others) => format!(", by {} and {} more", named.join(", "), others),
    }
}
