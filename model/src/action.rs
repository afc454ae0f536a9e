//! The steps, and what each does.

use crate::state::{Rules, State};
use crate::worker::{Process, Worker};
use crate::{INTERVALS, JOBS, WORKERS};

/// A step. Workers and jobs are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes: a heartbeat period of the first worker.
    Tick,
    /// A worker claims a job.
    Claim(usize, usize),
    /// A worker sends a heartbeat, which is answered.
    Beat(usize),
    /// A witness sweeps, and is answered. The job is decided if it is a candidate.
    Sweep(usize, usize),
    /// A worker reports the outcome of a job, and is answered.
    Report(usize, usize),
    /// A worker sends a heartbeat and gives it up. It may still arrive.
    DelayBeat(usize),
    /// The same with a sweep.
    DelaySweep(usize),
    /// The same with a report.
    DelayReport(usize, usize),
    /// A call that was given up arrives. If it is a sweep, the job is decided if it is a candidate.
    Arrive(usize),
    /// A worker dies.
    Kill(usize),
    /// Another worker starts in its place.
    Restart(usize),
    /// A worker freezes.
    Freeze(usize),
    /// It continues.
    Thaw(usize),
    /// A worker cannot reach the server.
    CutOff(usize),
    /// It can reach the server again, over a new connection.
    Connect(usize),
    /// The server executes no call. Those that it receives wait.
    FallSilent,
    /// No call of any worker reaches the server.
    LoseNetwork,
    /// The server answers again.
    Continue,
    /// From here on the replica receives nothing.
    Lag,
    /// The replica becomes the primary.
    FailOver,
}

/// After an outage of this many ticks, a heartbeat of every worker is late.
const NOTICED: u8 = 5;

/// A call that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Beat { worker: usize, held: [Option<u8>; JOBS] },
    Sweep { worker: usize, epoch: u8, waited: u8 },
    Report { worker: usize, job: usize, fence: u8 },
}

impl State {
    /// Whether the step is within the bounds.
    pub(crate) fn allows(&self, action: Action) -> bool {
        match action {
            Action::Kill(_) | Action::Freeze(_) | Action::CutOff(_) | Action::FallSilent | Action::LoseNetwork => {
                self.faults.min(self.all) > 0
            }
            Action::DelayBeat(_) | Action::DelaySweep(_) | Action::DelayReport(..) => {
                self.late_calls.min(self.all) > 0 && self.late.is_none()
            }
            Action::Lag => self.failovers.min(self.all) > 0,
            _ => true,
        }
    }

    /// The candidate that a sweep meets first. Without candidates it is any job.
    pub(crate) fn swept_first(&self) -> impl Iterator<Item = usize> {
        let candidates = self.server.candidates;
        (0..JOBS).filter(move |job| candidates & (1 << job) != 0 || candidates == 0 && *job == 0)
    }

    /// The epoch that the witness of the worker may sweep, and for how long it watched.
    pub(crate) fn may_sweep(&self, worker: usize, rules: Rules) -> Option<(u8, u8)> {
        let needs = (!rules.intervals).then_some(INTERVALS[worker]);
        self.workers[worker].clone().may_sweep(worker, rules.witness, needs)
    }

    pub(crate) fn make(&mut self, action: Action, rules: Rules) {
        match action {
            Action::Tick => {
                for (at, worker) in self.workers.iter_mut().enumerate() {
                    worker.tick(at, !self.is_silent);
                }
                self.outage = self.outage.map(|ticks| (ticks + 1).min(NOTICED));
            }
            Action::Claim(worker, job) => {
                self.fences[job] += 1;
                self.server.claim(job, (worker, self.fences[job]));
                self.workers[worker].held[job] = Some(self.fences[job]);
            }
            Action::Beat(worker) => {
                let lost = self.server.beat(worker, self.workers[worker].held, rules.fences);
                let it = &mut self.workers[worker];
                for job in (0..JOBS).filter(|job| lost & (1 << job) != 0) {
                    it.held[job] = None;
                }
                self.arrived &= !(1 << worker);
                it.beat_answered(worker, self.server.epoch, self.server.interval, rules.witness);
            }
            Action::Sweep(worker, job) => {
                if let Some((epoch, waited)) = self.may_sweep(worker, rules) {
                    self.sweep(worker, job, epoch, waited, rules);
                    self.workers[worker].sweep_answered(self.server.epoch, self.server.interval);
                }
            }
            Action::Report(worker, job) => {
                if let Some(fence) = self.workers[worker].held[job].take() {
                    self.report(worker, job, fence, rules);
                }
            }
            Action::DelayBeat(_) | Action::DelaySweep(_) | Action::DelayReport(..) => self.delay(action, rules),
            Action::Arrive(first) => match self.late.take() {
                Some(Call::Beat { worker, held }) => drop(self.server.beat(worker, held, rules.fences)),
                Some(Call::Sweep { worker, epoch, waited }) => self.sweep(worker, first, epoch, waited, rules),
                Some(Call::Report { worker, job, fence }) => self.report(worker, job, fence, rules),
                None => {}
            },
            _ => self.fault(action),
        }
    }

    fn fault(&mut self, action: Action) {
        if matches!(
            action,
            Action::Kill(_) | Action::Freeze(_) | Action::CutOff(_) | Action::FallSilent | Action::LoseNetwork
        ) {
            self.faults -= 1;
            self.all -= 1;
        }
        if let Action::Kill(worker) | Action::Freeze(worker) | Action::CutOff(worker) = action {
            self.arrived &= !(1 << worker);
        }
        match action {
            Action::Kill(worker) => {
                // Nothing of a dead worker matters any more.
                self.workers[worker] = Worker { process: Process::Dead, ..Worker::new(worker) };
            }
            Action::Restart(worker) => self.workers[worker] = Worker::new(worker),
            Action::Freeze(worker) => self.workers[worker].process = Process::Frozen,
            Action::Thaw(worker) => {
                let it = &mut self.workers[worker];
                (it.process, it.well_for, it.wait) = (Process::Running, 0, 0);
            }
            Action::CutOff(worker) => {
                let it = &mut self.workers[worker];
                (it.is_cut_off, it.is_connected) = (true, false);
            }
            Action::Connect(worker) => {
                let it = &mut self.workers[worker];
                (it.is_cut_off, it.well_for, it.wait) = (false, 0, 0);
            }
            Action::FallSilent => self.is_silent = true,
            Action::LoseNetwork => (self.is_silent, self.outage) = (true, Some(0)),
            Action::Continue => self.answer_again(),
            Action::Lag => {
                self.replica = Some(self.server.clone());
                self.failovers -= 1;
                self.all -= 1;
            }
            Action::FailOver => {
                self.server = self.replica.take().unwrap_or_else(|| self.server.clone());
                (self.is_silent, self.outage, self.arrived, self.late) = (false, None, 0, None);
                for worker in &mut self.workers {
                    worker.is_connected = false;
                }
            }
            _ => {}
        }
    }

    fn answer_again(&mut self) {
        self.is_silent = false;
        match self.outage.take() {
            None => {
                let sent = |worker: &usize| self.workers[*worker].is_well() && self.workers[*worker].due <= 0;
                self.arrived = (0..WORKERS).filter(sent).map(|worker| 1 << worker).sum();
            }
            // It lasted longer than a third of some interval, and a witness may not have noticed it.
            Some(ticks) if ticks < NOTICED => self.workers.iter_mut().for_each(|worker| worker.well_for = 0),
            Some(_) => {}
        }
    }

    fn delay(&mut self, action: Action, rules: Rules) {
        self.late_calls -= 1;
        self.all -= 1;
        self.late = match action {
            Action::DelayBeat(worker) => Some(Call::Beat { worker, held: self.workers[worker].held }),
            Action::DelaySweep(worker) => {
                self.may_sweep(worker, rules).map(|(epoch, waited)| Call::Sweep { worker, epoch, waited })
            }
            Action::DelayReport(worker, job) => {
                self.workers[worker].held[job].map(|fence| Call::Report { worker, job, fence })
            }
            _ => None,
        };
    }

    fn sweep(&mut self, worker: usize, job: usize, epoch: u8, waited: u8, rules: Rules) {
        let ask = INTERVALS[worker];
        let needs = if rules.intervals { self.server.interval } else { ask };
        let taken = self.server.sweep(job, ask, rules.epochs.then_some(epoch), waited, needs);
        if let Some((job, (holder, fence))) = taken {
            let it = &self.workers[holder];
            let held = it.held[job] == Some(fence);
            self.took_from_live |= held && it.is_well() && it.well_for >= INTERVALS[holder];
        }
    }

    fn report(&mut self, worker: usize, job: usize, fence: u8, rules: Rules) {
        let holds = self.server.locks[job] == Some((worker, fence));
        let recorded = self.server.report(job, (worker, fence), rules.fences);
        self.wrote_without_lock |= recorded && !holds;
    }
}
