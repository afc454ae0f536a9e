//! The claims of one task that are under way. Redis may have given us jobs that the driver does not know of yet.

use std::time::Duration;

use crate::backend::settle::SEQUENCES;
use crate::clock::{self, Moment};
use crate::mutex::Mutex;

/// The claims whose answer was not applied yet, by call sequence.
#[derive(Debug, Default)]
pub(crate) struct UnackedClaims(Mutex<[Option<Claim>; SEQUENCES.len()]>);

#[derive(Clone, Copy, Debug)]
struct Claim {
    number: u64,
    sent: Moment,
    /// No other worker can take the jobs of the claim before an interval has passed since then.
    kept: Moment,
    /// Whether it asks for jobs that will not have a slot.
    is_ahead: bool,
    owner: ClaimOwner,
}

/// Who decides about the jobs of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimOwner {
    /// Its answer was not applied.
    Nobody,
    Driver,
    Keeper,
}

impl UnackedClaims {
    /// Records that the call of this number was sent in this sequence. With `is_ahead` it asks for jobs that will not have a slot.
    pub(crate) fn sent(&self, sequence: usize, number: u64, sent: Moment, is_ahead: bool) {
        self.0.lock()[sequence] = Some(Claim { number, sent, kept: sent, is_ahead, owner: ClaimOwner::Nobody });
    }

    /// The number of the claim of this sequence has changed.
    pub(crate) fn renumbered(&self, sequence: usize, number: u64) {
        if let Some(claim) = &mut self.0.lock()[sequence] {
            claim.number = number;
        }
    }

    /// The driver applies the answer to the claim of this sequence. Returns whether its jobs are the driver's: the keeper may have
    /// handed them back.
    pub(crate) fn applies(&self, sequence: usize) -> bool {
        let mut sequences = self.0.lock();
        let Some(claim) = &mut sequences[sequence] else { return true };
        if claim.owner == ClaimOwner::Nobody {
            claim.owner = ClaimOwner::Driver;
        }
        claim.owner == ClaimOwner::Driver
    }

    /// The keeper hands back the jobs of this claim. Returns whether it may: the driver has not applied the answer.
    pub(crate) fn take_over(&self, sequence: usize, number: u64) -> bool {
        let mut sequences = self.0.lock();
        let claim = sequences[sequence].as_mut();
        let Some(claim) = claim.filter(|claim| claim.number == number && claim.owner == ClaimOwner::Nobody) else {
            return false;
        };
        claim.owner = ClaimOwner::Keeper;
        true
    }

    /// The claims, by sequence and number, that ask for jobs that will not have a slot, and whose answers were not applied.
    pub(crate) fn unapplied_ahead(&self) -> Vec<(usize, u64)> {
        let sequences = self.0.lock();
        let claims = sequences.iter().enumerate().filter_map(|(sequence, claim)| Some((sequence, (*claim)?)));
        claims
            .filter(|(_, claim)| claim.is_ahead && claim.owner == ClaimOwner::Nobody)
            .map(|(sequence, claim)| (sequence, claim.number))
            .collect()
    }

    /// Records that the heartbeat sent at `sent` named all jobs of the call.
    pub(crate) fn beaten(&self, sequence: usize, number: u64, sent: Moment) {
        if let Some(claim) = self.0.lock()[sequence].as_mut().filter(|claim| claim.number == number) {
            claim.kept = claim.kept.max(sent);
        }
    }

    /// Since when the jobs of this sequence's claim are safe for one interval.
    pub(crate) fn kept_since(&self, sequence: usize) -> Option<Moment> {
        self.0.lock()[sequence].map(|claim| claim.kept)
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
        let claims = sequences.iter().enumerate().filter_map(|(sequence, claim)| claim.map(|claim| (sequence, claim)));
        claims
            .filter(|(_, claim)| now.since(claim.sent) >= age)
            .map(|(sequence, claim)| (sequence, claim.number))
            .collect()
    }
}
