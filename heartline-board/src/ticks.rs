//! The last ticks of a schedule, as a strip of bars.

use std::time::SystemTime;

use heartline::inspect::text::exact;
use heartline::{RecentTick, TickOutcome};

/// The distance of two bars.
const STEP: usize = 6;

/// The height of the strip.
const HEIGHT: usize = 16;

/// The ticks, from the oldest to the newest.
pub(crate) struct Strip {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) bars: Vec<TickBar>,
}

/// A tick, or a run of missed ticks.
pub(crate) struct TickBar {
    pub(crate) class: &'static str,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) height: usize,
    pub(crate) title: String,
}

impl Strip {
    /// The strip of these ticks, which begin with the newest.
    pub(crate) fn of(recent: &[RecentTick], now: SystemTime) -> Strip {
        let ticks = recent.iter().rev().map(|tick| (tick.outcome, title(tick, now)));
        Strip::drawn(ticks.collect())
    }

    fn drawn(ticks: Vec<(TickOutcome, String)>) -> Strip {
        let bar = |(at, (outcome, title)): (usize, (TickOutcome, String))| {
            let height = height(outcome);
            TickBar { class: outcome.as_str(), x: at * STEP, y: HEIGHT - height, height, title }
        };
        let bars: Vec<TickBar> = ticks.into_iter().enumerate().map(bar).collect();
        Strip { width: bars.len() * STEP, height: HEIGHT, bars }
    }
}

/// The height differs too, for people who do not see the colours.
fn height(outcome: TickOutcome) -> usize {
    match outcome {
        TickOutcome::Fired | TickOutcome::ByHand => HEIGHT,
        TickOutcome::Overlapped => HEIGHT / 2,
        _ => HEIGHT / 4,
    }
}

/// An outcome as words.
pub(crate) fn word(outcome: TickOutcome) -> String {
    outcome.as_str().replace('_', " ")
}

fn title(tick: &RecentTick, now: SystemTime) -> String {
    let due = exact(tick.due, now);
    match tick.count {
        1 => format!("{}: {due}", word(tick.outcome)),
        count => format!("{count} {}, the last: {due}", word(tick.outcome)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_class_and_fired_ticks_are_tall() {
        let outcomes = [TickOutcome::Fired, TickOutcome::Overlapped, TickOutcome::Missed, TickOutcome::ByHand];
        let strip = Strip::drawn(outcomes.map(|outcome| (outcome, word(outcome))).into());
        let bars: Vec<_> = strip.bars.iter().map(|bar| (bar.class, bar.x, bar.height)).collect();
        assert_eq!(bars, [("fired", 0, 16), ("overlapped", 6, 8), ("missed", 12, 4), ("by_hand", 18, 16)]);
        assert_eq!(strip.bars[3].title, "by hand");
        assert!(strip.width == 24 && strip.bars.iter().all(|bar| bar.y + bar.height == strip.height));
    }
}
