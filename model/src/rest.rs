//! What happens when nothing more goes wrong.

use crate::state::{State, Sweeps};
use crate::worker::{LONGEST, Process, Worker};
use crate::{JOBS, WORKERS};

/// Two and a third of the longest interval.
const TICKS: u8 = 2 * LONGEST + LONGEST / 3;

/// Whether all jobs end in time, once every worker runs and can reach the server. Dead workers are replaced.
pub(crate) fn all_jobs_end(model: &Sweeps, state: &State) -> bool {
    let mut state = state.clone();
    (state.is_silent, state.outage, state.arrived, state.late) = (false, None, 0, None);
    for (at, worker) in state.workers.iter_mut().enumerate() {
        if worker.process == Process::Dead {
            *worker = Worker::new(at);
        }
        (worker.process, worker.is_cut_off) = (Process::Running, false);
    }
    (0..=TICKS).any(|_| {
        for worker in 0..WORKERS {
            turn(model, &mut state, worker);
        }
        for (at, worker) in state.workers.iter_mut().enumerate() {
            worker.tick(at, true);
        }
        state.server.ended == (1 << JOBS) - 1
    })
}

/// A worker does all that it can do now.
fn turn(model: &Sweeps, state: &mut State, worker: usize) {
    use crate::Action::{Beat, Claim, Report, Sweep};
    while state.workers[worker].due <= 0 {
        state.make(Beat(worker), model.rules);
    }
    // Each call decides about one job.
    for _ in 0..=JOBS {
        let job = state.swept_first().next();
        if let Some(job) = job.filter(|_| state.may_sweep(worker, model.rules).is_some()) {
            state.make(Sweep(worker, job), model.rules);
        }
    }
    while state.server.waiting != 0 {
        state.make(Claim(worker, state.server.waiting.trailing_zeros() as usize), model.rules);
    }
    for job in 0..JOBS {
        state.make(Report(worker, job), model.rules);
    }
}
