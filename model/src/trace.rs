//! Histories as text.

use std::fmt;

use stateright::Path;

use crate::action::Action;
use crate::state::State;
use crate::{JOBS, WORKERS};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |worker: usize| ["A", "B"][worker % WORKERS];
        let job = |job: usize| job + 1;
        match *self {
            Action::Tick => write!(f, "a tick passes"),
            Action::Claim(worker, of) => write!(f, "worker {} claims job {}", name(worker), job(of)),
            Action::Beat(worker) => write!(f, "worker {} sends a heartbeat", name(worker)),
            Action::Sweep(worker, _) => write!(f, "worker {} sweeps", name(worker)),
            Action::Report(worker, of) => write!(f, "worker {} reports job {}", name(worker), job(of)),
            Action::DelayBeat(worker) => write!(f, "a heartbeat of worker {} is delayed", name(worker)),
            Action::DelaySweep(worker) => write!(f, "a sweep of worker {} is delayed", name(worker)),
            Action::DelayReport(worker, of) => {
                write!(f, "a report of worker {} about job {} is delayed", name(worker), job(of))
            }
            Action::Arrive(_) => write!(f, "the delayed call arrives"),
            Action::Kill(worker) => write!(f, "worker {} dies", name(worker)),
            Action::Restart(worker) => write!(f, "another worker starts as worker {}", name(worker)),
            Action::Freeze(worker) => write!(f, "worker {} freezes", name(worker)),
            Action::Thaw(worker) => write!(f, "worker {} continues", name(worker)),
            Action::CutOff(worker) => write!(f, "worker {} cannot reach the server", name(worker)),
            Action::Connect(worker) => write!(f, "worker {} connects again", name(worker)),
            Action::FallSilent => write!(f, "the server stops answering"),
            Action::LoseNetwork => write!(f, "no worker can reach the server"),
            Action::Continue => write!(f, "the server answers again"),
            Action::Lag => write!(f, "the replica receives nothing more"),
            Action::FailOver => write!(f, "the replica becomes the primary"),
        }
    }
}

/// What a step did that its name does not say: a sweep decided about a job, or took the snapshot.
fn effects(before: &State, after: &State, step: Action) -> String {
    let (old, new) = (&before.server, &after.server);
    let mut text = String::new();
    if matches!(step, Action::Sweep(..) | Action::Arrive(_)) {
        for job in (0..JOBS).filter(|job| old.candidates & (1 << job) != 0 && new.locks[*job].is_none()) {
            text += &format!(", and takes job {}", job + 1);
        }
        if new.candidates & !old.candidates != 0 {
            text += ", and takes a snapshot";
        }
    }
    text
}

/// The steps of a history as sentences, one a line. Ticks in a row are one line.
#[must_use]
pub fn trace(path: &Path<State, Action>) -> String {
    let history = path.clone().into_vec();
    let steps: Vec<(Action, String)> =
        history.windows(2).filter_map(|pair| Some((pair[0].1?, effects(&pair[0].0, &pair[1].0, pair[0].1?)))).collect();
    let lines = steps.chunk_by(|one, next| one.0 == next.0 && next.1.is_empty()).map(|steps| match steps {
        [(Action::Tick, _), _, ..] => format!("{} ticks pass", steps.len()),
        [(step, effects)] => format!("{step}{effects}"),
        [(step, effects), ..] => format!("{step}{effects}; {} times", steps.len()),
        [] => String::new(),
    });
    lines.enumerate().map(|(at, line)| format!("{:>2}. {line}\n", at + 1)).collect()
}
