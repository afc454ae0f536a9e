use heartline::{Context, Interrupted, JobError};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often a running handler sends a heartbeat.
const PULSE: Duration = Duration::from_millis(50);

/// What the handlers of a task saw, and the gates at which they wait.
#[derive(Default)]
pub struct Journal {
    runs: Mutex<Vec<Run>>,
    interruptions: Mutex<Vec<String>>,
    gates: watch::Sender<BTreeSet<String>>,
}

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    pub worker: String,
    pub fence: u64,
    pub stalled_count: u32,
}

impl Journal {
    pub fn begin(&self, ctx: &Context) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(Run {
            id: ctx.id().to_string(),
            worker: ctx.worker_id().to_string(),
            fence: ctx.fence(),
            stalled_count: ctx.stalled_count(),
        });
    }

    pub fn note(&self, interruption: impl Into<String>) {
        self.interruptions.lock().unwrap_or_else(PoisonError::into_inner).push(interruption.into());
    }

    pub fn interruptions(&self) -> Vec<String> {
        self.interruptions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runs of one job, in the order in which they began.
    pub fn runs_of(&self, id: impl AsRef<str>) -> Vec<Run> {
        self.runs().into_iter().filter(|run| run.id == id.as_ref()).collect()
    }

    pub fn open(&self, gate: &str) {
        self.gates.send_modify(|gates| {
            gates.insert(gate.to_owned());
        });
    }

    pub async fn opened(&self, gate: &str) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.gates.subscribe().wait_for(|gates| gates.contains(gate)).await;
    }

    /// A handler that works until its gate opens, sends heartbeats meanwhile, and records whatever stops it.
    pub async fn work(&self, ctx: Context, gate: String) -> Result<u64, JobError> {
        self.begin(&ctx);
        let mut pulse = tokio::time::interval(PULSE);
        loop {
            tokio::select! {
                () = self.opened(&gate) => return Ok(ctx.fence()),
                () = ctx.cancelled() => {
                    self.note(format!("{} was cancelled", ctx.id()));
                    return Err("cancelled".into());
                }
                _ = pulse.tick() => match ctx.heartbeat() {
                    // `cancelled` reports it as well: if the heartbeat came first, one cancel would be recorded twice.
                    Ok(()) | Err(Interrupted::Cancelled) => {}
                    Err(e) => self.note(format!("{}: {e}", ctx.id())),
                },
            }
        }
    }
}
