//! Makes states equal that differ only in what can never matter again. So the search ends, and sooner.

use crate::action::Call;
use crate::server::Token;
use crate::state::{Rules, State, Sweeps};
use crate::worker::{PAST, Process};
use crate::{JOBS, WORKERS};

impl State {
    pub(crate) fn simplify(&mut self, model: &Sweeps) {
        let rules = model.rules;
        self.lower_epochs();
        if rules.fences {
            self.drop_lost_jobs();
        }
        (0..JOBS).for_each(|job| self.lower_fences(job));
        for worker in 0..WORKERS {
            self.forget_watch(worker, rules);
        }
        if model.jobs_are_alike {
            let exchanged = self.with_jobs_exchanged();
            if exchanged < *self {
                *self = exchanged;
            }
        }
    }

    /// The same state, if the jobs had the other numbers.
    fn with_jobs_exchanged(&self) -> State {
        let mut state = self.clone();
        for server in [Some(&mut state.server), state.replica.as_mut()].into_iter().flatten() {
            for set in [&mut server.waiting, &mut server.active, &mut server.candidates, &mut server.ended] {
                *set = (*set & 1) << 1 | *set >> 1;
            }
            server.locks.reverse();
            server.stalls.reverse();
            server.ends.reverse();
        }
        state.workers.iter_mut().for_each(|worker| worker.held.reverse());
        state.fences.reverse();
        match &mut state.late {
            Some(Call::Beat { held, .. }) => held.reverse(),
            Some(Call::Report { job, .. }) => *job = 1 - *job,
            _ => {}
        }
        state
    }

    /// Counts epochs from the lowest one that a server has or may have again.
    fn lower_epochs(&mut self) {
        let kept = self.replica.as_ref().map_or(self.server.epoch, |replica| replica.epoch);
        let base = kept.min(self.server.epoch);
        let lower = |epoch: &mut u8| *epoch = if *epoch == PAST || *epoch < base { PAST } else { *epoch - base };
        lower(&mut self.server.epoch);
        if let Some(replica) = &mut self.replica {
            lower(&mut replica.epoch);
        }
        for note in self.workers.iter_mut().filter_map(|worker| worker.note.as_mut()) {
            lower(&mut note.epoch);
        }
        if let Some(Call::Sweep { epoch, .. }) = &mut self.late {
            lower(epoch);
        }
    }

    /// No server accepts anything under a fence that is in no lock.
    fn drop_lost_jobs(&mut self) {
        let locks = [Some(&self.server), self.replica.as_ref()].map(|server| server.map(|server| server.locks));
        let is_lost = |job: usize, token: Token| locks.iter().flatten().all(|locks| locks[job] != Some(token));
        let drop_from = |held: &mut [Option<u8>; JOBS], worker: usize| {
            for (job, fence) in held.iter_mut().enumerate() {
                *fence = fence.filter(|fence| !is_lost(job, (worker, *fence)));
            }
        };
        for (at, worker) in self.workers.iter_mut().enumerate() {
            drop_from(&mut worker.held, at);
        }
        match &mut self.late {
            Some(Call::Beat { worker, held }) => drop_from(held, *worker),
            Some(Call::Report { worker, job, fence }) if is_lost(*job, (*worker, *fence)) => self.late = None,
            _ => {}
        }
    }

    /// Numbers the fences of a job from 1. They are only compared for equality, and new ones are larger than all.
    fn lower_fences(&mut self, job: usize) {
        let locks = [Some(&mut self.server), self.replica.as_mut()].into_iter().flatten();
        let locked = locks.filter_map(|server| server.locks[job].as_mut().map(|(_, fence)| fence));
        let held = self.workers.iter_mut().filter_map(|worker| worker.held[job].as_mut());
        let late = match &mut self.late {
            Some(Call::Beat { held, .. }) => held[job].as_mut(),
            Some(Call::Report { job: of, fence, .. }) if *of == job => Some(fence),
            _ => None,
        };
        let mut fences = locked.chain(held).chain(late);
        let mut found: [Option<&mut u8>; 5] = std::array::from_fn(|_| fences.next());
        found.sort_unstable();
        let (mut last, mut rank) = (0, 0);
        for fence in found.into_iter().flatten() {
            if *fence != last {
                (last, rank) = (*fence, rank + 1);
            }
            *fence = rank;
        }
        self.fences[job] = rank;
    }

    /// A watch that the next heartbeat restarts need not be remembered.
    fn forget_watch(&mut self, worker: usize, rules: Rules) {
        let it = &mut self.workers[worker];
        let (restarts, is_due) = (!it.is_connected || it.is_late(worker), it.due <= 0);
        let Some(note) = it.note.as_mut().filter(|_| rules.witness && it.process != Process::Dead) else { return };
        if restarts {
            note.since = 0;
        }
        if is_due {
            note.interval = 0;
        }
    }
}
