//! The claims of one task that are under way: what Redis gave out for them is ours, and the driver does not know of it yet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::store::settle::LINES;

/// The claims whose answer was not taken in, by line.
#[derive(Debug, Default)]
pub(crate) struct OpenClaims(Mutex<[Option<Claim>; LINES.len()]>);

#[derive(Clone, Copy, Debug)]
struct Claim {
    number: u64,
    sent: Moment,
    /// Nobody can take its jobs before an interval has passed since.
    kept: Moment,
}

impl OpenClaims {
    fn lines(&self) -> MutexGuard<'_, [Option<Claim>; LINES.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call of this number was sent on the line.
    pub(crate) fn sent(&self, line: usize, number: u64, sent: Moment) {
        self.lines()[line] = Some(Claim { number, sent, kept: sent });
    }

    /// A beat that was sent then named all that the call was given.
    pub(crate) fn beaten(&self, line: usize, number: u64, sent: Moment) {
        if let Some(claim) = self.lines()[line].as_mut().filter(|claim| claim.number == number) {
            claim.kept = claim.kept.max(sent);
        }
    }

    /// Since when the jobs of the claim of this line are safe for an interval.
    pub(crate) fn kept_since(&self, line: usize) -> Option<Moment> {
        self.lines()[line].map(|claim| claim.kept)
    }

    /// The jobs of the claim of this line have entered the held table.
    pub(crate) fn taken_in(&self, line: usize) {
        self.lines()[line] = None;
    }

    /// Nobody takes the answers in any more.
    pub(crate) fn let_go(&self) {
        *self.lines() = Default::default();
    }

    /// The calls, by line and number, that have been under way for so long: the runtime may be blocked, or the answer late.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<(usize, u64)> {
        let (now, lines) = (clock::now(), self.lines());
        let claims = lines.iter().enumerate().filter_map(|(line, claim)| claim.map(|claim| (line, claim)));
        claims.filter(|(_, claim)| now.since(claim.sent) >= age).map(|(line, claim)| (line, claim.number)).collect()
    }
}
