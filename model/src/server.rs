//! The server: the keys of a task, and the scripts that write them.

use crate::{INTERVALS, JOBS};

/// The worker and the fence of a lock.
pub type Token = (usize, u8);

/// The keys of the task. A set of jobs has a bit for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Server {
    pub(crate) waiting: u8,
    pub(crate) active: u8,
    pub(crate) candidates: u8,
    pub(crate) ended: u8,
    pub(crate) locks: [Option<Token>; JOBS],
    pub(crate) stalls: [u8; JOBS],
    /// How often an end was recorded.
    pub(crate) ends: [u8; JOBS],
    pub(crate) epoch: u8,
    pub(crate) interval: u8,
    pub(crate) ask: u8,
}

/// A stalled job is recovered once, as with the default `max_count`.
const MAX_COUNT: u8 = 1;

impl Server {
    /// All jobs are dispatched, and no worker has made a call.
    pub(crate) fn new() -> Server {
        Server {
            waiting: (1 << JOBS) - 1,
            active: 0,
            candidates: 0,
            ended: 0,
            locks: [None; JOBS],
            stalls: [0; JOBS],
            ends: [0; JOBS],
            epoch: 0,
            interval: 0,
            ask: 0,
        }
    }

    /// `lib/interval.lua`: a larger ask applies at once, and the next epoch takes the largest ask of this one.
    fn ask_interval(&mut self, ask: u8) {
        if ask > self.interval {
            (self.interval, self.ask) = (ask, ask);
        } else if ask > self.ask {
            self.ask = ask;
        }
    }

    /// `settle.lua`: a worker claims a job. The caller draws the fence.
    pub(crate) fn claim(&mut self, job: usize, token: Token) {
        self.waiting &= !(1 << job);
        self.active |= 1 << job;
        self.locks[job] = Some(token);
        self.ask_interval(INTERVALS[token.0]);
    }

    /// `extend_locks.lua`: a heartbeat names the jobs that a worker holds. Returns those that it lost.
    pub(crate) fn beat(&mut self, worker: usize, held: [Option<u8>; JOBS], with_fences: bool) -> u8 {
        let mut lost = 0;
        for (job, fence) in held.iter().enumerate() {
            let Some(fence) = fence else { continue };
            if !with_fences || self.locks[job] == Some((worker, *fence)) {
                self.active |= 1 << job;
                self.candidates &= !(1 << job);
            } else {
                lost |= 1 << job;
            }
        }
        self.ask_interval(INTERVALS[worker]);
        lost
    }

    /// `settle.lua`: a worker reports the outcome of a job. Returns whether it was recorded.
    pub(crate) fn report(&mut self, job: usize, token: Token, with_fences: bool) -> bool {
        if with_fences && self.locks[job] != Some(token) {
            return false;
        }
        self.end(job);
        true
    }

    fn end(&mut self, job: usize) {
        self.locks[job] = None;
        self.active &= !(1 << job);
        self.candidates &= !(1 << job);
        self.ended |= 1 << job;
        self.ends[job] = (self.ends[job] + 1).min(2);
    }

    /// `sweep.lua`, with a limit of one job. Decides about a candidate and, when none is left, takes the snapshot. `job` is the
    /// one that `SSCAN` returns first. `epoch` is omitted if the server does not compare it, and `needs` is the time that
    /// must have been watched.
    /// Returns the job that was decided, and its lock.
    pub(crate) fn sweep(
        &mut self,
        job: usize,
        ask: u8,
        epoch: Option<u8>,
        waited: u8,
        needs: u8,
    ) -> Option<(usize, Token)> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) || waited < needs {
            return None;
        }
        let stalled = Some(job).filter(|job| self.candidates & (1 << job) != 0);
        let taken = stalled.and_then(|job| Some((job, self.locks[job]?)));
        if let Some(job) = stalled {
            self.stalls[job] += 1;
            if self.stalls[job] > MAX_COUNT {
                self.end(job);
            } else {
                self.locks[job] = None;
                self.candidates &= !(1 << job);
                self.waiting |= 1 << job;
            }
        }
        if self.candidates == 0 {
            (self.candidates, self.active) = (self.active, 0);
            self.epoch += 1;
            self.interval = self.ask.max(ask);
            self.ask = ask;
        }
        taken
    }

    /// Whether each job is in exactly one place, and recorded at most once.
    pub(crate) fn is_sound(&self) -> bool {
        (0..JOBS).all(|job| {
            let has = |set: u8| u8::from(set & (1 << job) != 0);
            let held = u8::from(self.locks[job].is_some());
            has(self.waiting) + has(self.ended) + held == 1 && has(self.active) + has(self.candidates) == held
        })
    }
}
