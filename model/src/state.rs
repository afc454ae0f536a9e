//! The state of everything, the steps that may come next, and what must always hold.

use stateright::{Model, Property};

use crate::action::{Action, Call};
use crate::rest;
use crate::server::Server;
use crate::worker::{Process, Worker};
use crate::{JOBS, WORKERS};

/// The rules that are followed.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A sweep needs an unbroken watch of one process: over one connection, with no answer late, and no heartbeat due.
    pub witness: bool,
    /// The server refuses a sweep that watched another epoch.
    pub epochs: bool,
    /// The largest interval that a worker declares applies to all. Otherwise a witness waits for its own.
    pub intervals: bool,
    /// Heartbeats and reports count only under the fence of the lock.
    pub fences: bool,
}

impl Rules {
    /// The rules of Heartline.
    pub const ALL: Rules = Rules { witness: true, epochs: true, intervals: true, fences: true };
}

/// How much may go wrong in one history.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many faults: a worker dies, freezes or is cut off, the server stops answering, or no worker can reach it.
    pub faults: u8,
    /// How many calls may arrive late, after their sender has given them up.
    pub late_calls: u8,
    /// How many failovers. Each loses what the replica had not received.
    pub failovers: u8,
    /// How many snapshots a failover may lose.
    pub lost_snapshots: u8,
    /// How many faults, late calls and failovers together.
    pub all: u8,
}

/// The stall detector, with these rules and bounds.
#[derive(Clone, Copy, Debug)]
pub struct Sweeps {
    /// What the workers and the server follow.
    pub rules: Rules,
    /// What may happen to them.
    pub bounds: Bounds,
    /// Whether states that differ only in the numbers of the jobs are one. Then a trace may exchange the numbers.
    pub jobs_are_alike: bool,
}

/// One state: the server, what its replica has received, the workers, and a call on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    pub(crate) server: Server,
    /// What the replica has, once it lags. Until then it has everything.
    pub(crate) replica: Option<Server>,
    pub(crate) is_silent: bool,
    /// For how long no worker has been able to reach it, up to [`NOTICED`].
    pub(crate) outage: Option<u8>,
    /// The workers whose heartbeats arrived while the server was silent. It executes them before calls that are sent later.
    pub(crate) arrived: u8,
    pub(crate) workers: [Worker; WORKERS],
    /// A call that its sender has given up, and that may still arrive.
    pub(crate) late: Option<Call>,
    /// The last fence that was drawn for each job. Fences also grow across a failover.
    pub(crate) fences: [u8; JOBS],
    pub(crate) faults: u8,
    pub(crate) late_calls: u8,
    pub(crate) failovers: u8,
    pub(crate) all: u8,
    /// A sweep took a job from a worker that was alive and could reach the server.
    pub(crate) took_from_live: bool,
    /// An outcome was recorded for a worker that did not hold the job.
    pub(crate) wrote_without_lock: bool,
}

impl Model for Sweeps {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: Server::new(),
            replica: None,
            is_silent: false,
            outage: None,
            arrived: 0,
            workers: [Worker::new(0), Worker::new(1)],
            late: None,
            fences: [0; JOBS],
            faults: self.bounds.faults,
            late_calls: self.bounds.late_calls,
            failovers: self.bounds.failovers,
            all: self.bounds.all,
            took_from_live: false,
            wrote_without_lock: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let answers = !state.is_silent;
        if !answers || (0..WORKERS).all(|worker| !state.workers[worker].must_beat(worker)) {
            actions.push(Action::Tick);
        }
        for worker in 0..WORKERS {
            self.actions_of(state, worker, actions);
        }
        if answers && state.late.is_some() {
            actions.extend(state.swept_first().map(Action::Arrive));
        }
        if answers {
            actions.extend([Action::FallSilent, Action::LoseNetwork]);
        } else {
            actions.push(Action::Continue);
        }
        actions.push(if state.replica.is_none() { Action::Lag } else { Action::FailOver });
        actions.retain(|action| state.allows(*action));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.make(action, self.rules);
        next.simplify(self);
        Some(next)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.replica.as_ref().is_none_or(|replica| state.server.epoch - replica.epoch <= self.bounds.lost_snapshots)
    }

    fn properties(&self) -> Vec<Property<Sweeps>> {
        vec![
            Property::always("P1", |_, state: &State| state.server.is_sound()),
            Property::always("P1, P2", rest::all_jobs_end),
            Property::always("P3", |_, state: &State| !state.took_from_live),
            Property::always("P4", |_, state: &State| {
                !state.wrote_without_lock && state.server.ends.iter().all(|ends| *ends < 2)
            }),
        ]
    }
}

impl Sweeps {
    /// What the worker may do, and what may happen to it.
    fn actions_of(&self, state: &State, worker: usize, actions: &mut Vec<Action>) {
        let (it, answers) = (&state.workers[worker], !state.is_silent);
        match it.process {
            Process::Dead => {
                actions.push(Action::Restart(worker));
                return;
            }
            Process::Frozen => {
                actions.extend([Action::Thaw(worker), Action::Kill(worker)]);
                return;
            }
            Process::Running => {}
        }
        actions.extend([Action::Freeze(worker), Action::Kill(worker)]);
        actions.push(if it.is_cut_off { Action::Connect(worker) } else { Action::CutOff(worker) });
        if it.is_cut_off {
            return;
        }
        let may_sweep = state.arrived == 0 && state.may_sweep(worker, self.rules).is_some();
        if it.due <= 0 {
            actions.extend(answers.then_some(Action::Beat(worker)));
            actions.push(Action::DelayBeat(worker));
        }
        if may_sweep {
            if answers {
                actions.extend(state.swept_first().map(|job| Action::Sweep(worker, job)));
            }
            actions.push(Action::DelaySweep(worker));
        }
        if answers && it.may_claim(worker) {
            let waiting = (0..JOBS).filter(|job| state.server.waiting & (1 << job) != 0);
            actions.extend(waiting.map(|job| Action::Claim(worker, job)));
        }
        for job in (0..JOBS).filter(|job| it.held[*job].is_some()) {
            actions.extend(answers.then_some(Action::Report(worker, job)));
            actions.push(Action::DelayReport(worker, job));
        }
    }
}
