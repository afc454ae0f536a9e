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
}

impl UnackedClaims {
    /// Records that the call of this number was sent in this sequence.
    pub(crate) fn sent(&self, sequence: usize, number: u64, sent: Moment) {
        self.0.lock()[sequence] = Some(Claim { number, sent, kept: sent });
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
