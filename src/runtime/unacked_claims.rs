//! The claims of one task that are under way. Redis may have given us jobs that the driver does not know of yet.

use std::time::Duration;

use crate::backend::settle::SEQUENCES;
use crate::clock::{self, Moment};
use crate::mutex::Mutex;

/// The claims whose answer was not applied yet, by call sequence.
#[derive(Debug, Default)]
pub(crate) struct UnackedClaims(Mutex<[Option<Claim>; SEQUENCES.len()]>);

#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    sent: Moment,
    /// No other worker can take the jobs of the claim before an interval has passed since then.
    kept: Moment,
    /// Whether it asks for jobs that will not have a slot.
    is_ahead: bool,
    /// Whether the driver has applied its answer.
    is_applied: bool,
    /// The fences of its jobs that the keeper hands back. A repeat of the call on another primary may claim other jobs.
    taken: Vec<u64>,
}

impl Claim {
    /// Whether neither the driver nor the keeper has its jobs.
    fn is_unapplied(&self) -> bool {
        !self.is_applied && self.taken.is_empty()
    }
}

impl UnackedClaims {
    /// Records that the call of this number was sent in this sequence. With `is_ahead` it asks for jobs that will not have a slot.
    pub(crate) fn sent(&self, sequence: usize, number: u64, sent: Moment, is_ahead: bool) {
        let claim = Claim { number, sent, kept: sent, is_ahead, is_applied: false, taken: Vec::new() };
        self.0.lock()[sequence] = Some(claim);
    }

    /// The number of the claim of this sequence has changed.
    pub(crate) fn renumbered(&self, sequence: usize, number: u64) {
        if let Some(claim) = &mut self.0.lock()[sequence] {
            claim.number = number;
        }
    }

    /// The driver applies the answer to the claim of this sequence. Returns the fences of its jobs that the keeper hands back.
    pub(crate) fn applies(&self, sequence: usize) -> Vec<u64> {
        let mut sequences = self.0.lock();
        let Some(claim) = &mut sequences[sequence] else { return Vec::new() };
        claim.is_applied = true;
        std::mem::take(&mut claim.taken)
    }

    /// The keeper hands back these jobs of the claim. Returns whether it may: the driver has not applied the answer.
    pub(crate) fn take_over(&self, sequence: usize, number: u64, fences: Vec<u64>) -> bool {
        let mut sequences = self.0.lock();
        let claim = sequences[sequence].as_mut();
        let Some(claim) = claim.filter(|claim| claim.number == number && claim.is_unapplied()) else { return false };
        claim.taken = fences;
        true
    }

    /// The claims, by sequence and number, that ask for jobs that will not have a slot, and whose answers were not applied.
    pub(crate) fn unapplied_ahead(&self) -> Vec<(usize, u64)> {
        let sequences = self.0.lock();
        let claims = sequences.iter().enumerate().filter_map(|(sequence, claim)| Some((sequence, claim.as_ref()?)));
        let claims = claims.filter(|(_, claim)| claim.is_ahead && claim.is_unapplied());
        claims.map(|(sequence, claim)| (sequence, claim.number)).collect()
    }

    /// Records that the heartbeat sent at `sent` named all jobs of the call.
    pub(crate) fn beaten(&self, sequence: usize, number: u64, sent: Moment) {
        if let Some(claim) = self.0.lock()[sequence].as_mut().filter(|claim| claim.number == number) {
            claim.kept = claim.kept.max(sent);
        }
    }

    /// Since when the jobs of this sequence's claim are safe for one interval.
    pub(crate) fn kept_since(&self, sequence: usize) -> Option<Moment> {
        self.0.lock()[sequence].as_ref().map(|claim| claim.kept)
    }

    /// Drops the claim of this sequence: its jobs are recorded as held.
    pub(crate) fn recorded(&self, sequence: usize) {
        self.0.lock()[sequence] = None;
    }

    /// Drops all claims: their answers will not be applied.
    pub(crate) fn let_go(&self) {
        *self.0.lock() = Default::default();
    }

    /// The calls, by sequence and number, that have been under way for this long: the runtime may be blocked, or the answer late.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<(usize, u64)> {
        let (now, sequences) = (clock::now(), self.0.lock());
        let claims = sequences.iter().enumerate().filter_map(|(sequence, claim)| Some((sequence, claim.as_ref()?)));
        claims
            .filter(|(_, claim)| now.since(claim.sent) >= age)
            .map(|(sequence, claim)| (sequence, claim.number))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_takes_jobs_only_before_the_driver_applies_the_answer() {
        let claims = UnackedClaims::default();
        claims.sent(0, 7, clock::now(), true);
        assert_eq!(claims.unapplied_ahead(), [(0, 7)]);
        assert!(!claims.take_over(0, 6, vec![1]), "another call");
        assert!(claims.take_over(0, 7, vec![1, 2]));
        assert_eq!(claims.unapplied_ahead(), []);
        // A repeat on a primary that lost the call may claim other jobs: those are the driver's.
        assert_eq!(claims.applies(0), [1, 2]);
        assert!(!claims.take_over(0, 7, vec![3]));
        claims.sent(0, 8, clock::now(), true);
        assert_eq!(claims.applies(0), [0; 0]);
        assert!(!claims.take_over(0, 8, vec![4]));
        claims.sent(0, 9, clock::now(), false);
        assert_eq!(claims.unapplied_ahead(), [], "all of its jobs have slots");
    }
}
