//! The end of a history: healthy workers end all jobs.

use super::History;
use crate::simulation::lanes::nouns::{PerKey, State};

/// How many rounds may pass in which no job ends. A key rests for some of them.
const IDLE_ROUNDS: usize = 60;
/// How many calls may remove tombstones.
const LAST_CALLS: usize = 50;

impl History {
    pub(super) fn drain(&mut self) {
        self.note("nothing fails any more".to_owned());
        self.pause(false);
        self.reset_lanes();
        if self.books.is_broken {
            self.trim();
        }
        let (per_key, max_running) = (self.books.per_key, self.books.max_running);
        if per_key.rate > 0 {
            self.declare(PerKey { rate: 0, ..per_key }, max_running);
        }
        let mut idle = 0;
        while self.books.jobs.values().any(|job| !matches!(job.state, State::Ended(_) | State::Gone)) {
            let ended = self.books.ended;
            self.round();
            idle = if self.books.ended > ended { 0 } else { idle + 1 };
            if idle > 2 {
                // A key that rests does so for some milliseconds of the server.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert!(idle < IDLE_ROUNDS, "no job ends any more: {:#?}", self.see());
        }
        self.check();
        let mut calls = 0;
        while !self.see().is_empty() {
            calls += 1;
            assert!(calls < LAST_CALLS, "tombstones stay: {:#?}", self.see());
            self.settle(0, true);
        }
        self.check();
    }

    /// Each worker completes its jobs and claims more, and a sweep resolves those of dead workers.
    fn round(&mut self) {
        self.steps += 1;
        while !self.books.ids(|state| *state == State::Delayed { is_due: false }).is_empty() {
            self.make_due();
        }
        for at in 0..self.workers.len() {
            self.settle(at, true);
            self.beat(at);
        }
        self.sweep(0);
    }
}
