//! The witness rule, for the simulation, which has its own clock.

use std::time::Duration;

use crate::clock::Moment;
use crate::stall::witness;

/// What a keeper observed of one task. Times are milliseconds on any monotonic clock.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SimulatedWitness(witness::Witness);

impl SimulatedWitness {
    #[must_use]
    pub fn new(period_ms: u64, now_ms: u64) -> SimulatedWitness {
        SimulatedWitness(witness::Witness::new(Duration::from_millis(period_ms), Moment::from_millis(now_ms)))
    }

    pub fn beat_answered(&mut self, due_ms: u64, now_ms: u64, epoch: u64, interval_ms: u64) {
        let (due, now) = (Moment::from_millis(due_ms), Moment::from_millis(now_ms));
        self.0.beat_answered(due, now, epoch, Duration::from_millis(interval_ms));
    }

    pub fn next_beat_at(&mut self, at_ms: u64) {
        self.0.next_beat_at(Moment::from_millis(at_ms));
    }

    pub fn broken(&mut self, now_ms: u64) {
        self.0.broken(Moment::from_millis(now_ms), witness::DetectorReset::ConnectionLost);
    }

    pub fn sweep_answered(&mut self, now_ms: u64, epoch: u64, interval_ms: u64) {
        self.0.sweep_answered(Moment::from_millis(now_ms), epoch, Duration::from_millis(interval_ms));
    }

    /// The epoch, and for how many milliseconds it was watched, if a sweep is allowed.
    pub fn may_sweep(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        let (epoch, waited) = self.0.may_sweep(Moment::from_millis(now_ms))?;
        Some((epoch, waited.as_millis() as u64))
    }
}
