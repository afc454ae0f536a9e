//! The progress of the sweep of an epoch, and what to send next.

use std::time::Duration;

use crate::limits::{FEW, LEAST_SWEEP, MOST_SWEEP, SHRINK_STEP};

/// The most resolving calls in flight. Each removes what it decides, so the next call finds other candidates.
const TOGETHER: u64 = 5;

/// The most shrinking calls in flight.
const MOST_SHRINKS: u64 = 500;

/// The progress of the sweep of an epoch. Heartbeats in between do not reset it.
#[derive(Debug, Default)]
pub(crate) struct SweepProgress {
    epoch: u64,
    cursor: String,
    /// The table of the candidates was shrunk in this epoch.
    shrunk: bool,
    /// Candidates, and running jobs with a heartbeat since the snapshot, as last reported.
    candidates: u64,
    active: u64,
    round_trip: Duration,
}

/// One round of calls that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SweepPlan {
    pub(super) shrinks: u64,
    pub(super) sweeps: u64,
    pub(super) limit: usize,
    pub(super) cursor: String,
}

impl SweepProgress {
    /// A heartbeat reported the number of candidates and of active jobs.
    pub(crate) fn heard(&mut self, candidates: u64, active: u64, round_trip: Duration) {
        (self.candidates, self.active, self.round_trip) = (candidates, active, round_trip);
    }

    /// How long the last heartbeat took.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// What to send next in this epoch.
    pub(super) fn plan(&mut self, epoch: u64) -> SweepPlan {
        if self.epoch != epoch || self.cursor.is_empty() {
            (self.epoch, self.cursor, self.shrunk) = (epoch, "0".to_owned(), false);
        }
        // Few of very many are left: see `shrink`.
        let few = !self.shrunk && self.candidates > 0 && self.candidates * FEW < self.active;
        self.shrunk |= few;
        // On a slow link, send fewer and larger calls.
        let limit = (self.round_trip.as_millis() as usize * 12).clamp(LEAST_SWEEP, MOST_SWEEP);
        SweepPlan {
            shrinks: if few { self.active.div_ceil(SHRINK_STEP).min(MOST_SHRINKS) } else { 0 },
            sweeps: self.candidates.div_ceil(limit as u64).clamp(1, TOGETHER),
            limit,
            cursor: self.cursor.clone(),
        }
    }

    pub(super) fn swept(&mut self, cursor: String, left: u64) {
        (self.cursor, self.candidates) = (cursor, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn heard(candidates: u64, active: u64, round_trip: Duration) -> SweepProgress {
        let mut pass = SweepProgress::default();
        pass.heard(candidates, active, round_trip);
        pass
    }

    #[test]
    fn a_round_grows_with_the_candidates_and_with_the_round_trip() {
        let plan = |candidates, ms| heard(candidates, 0, Duration::from_millis(ms)).plan(1);
        let rounds = [plan(0, 0), plan(25, 0), plan(26, 0), plan(1_000, 0), plan(1_000, 5), plan(1_000, 20)];
        let sizes = rounds.map(|plan| (plan.sweeps, plan.limit));
        assert_eq!(sizes, [(1, 25), (1, 25), (2, 25), (5, 25), (5, 60), (5, 200)]);
    }

    #[test]
    fn a_mostly_empty_table_is_shrunk_once_an_epoch() {
        let mut pass = heard(999, 1_000_000, NOW);
        assert_eq!(pass.plan(3).shrinks, 250);
        pass.swept("17".to_owned(), 900);
        // A heartbeat comes in between.
        pass.heard(900, 1_000_000, NOW);
        let next = pass.plan(3);
        assert_eq!((next.shrinks, next.cursor.as_str()), (0, "17"));
        pass.heard(10, 1_000_000, NOW);
        let other = pass.plan(4);
        assert_eq!((other.shrinks, other.cursor.as_str()), (250, "0"));
        assert_eq!(heard(1_000, 1_000_000, NOW).plan(1).shrinks, 0);
    }
}
