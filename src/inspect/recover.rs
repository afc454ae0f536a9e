//! A person's word that a worker is dead: its jobs are resolved at once.

use serde::Serialize;

use super::Inspector;
use super::silent::ResolvedJob;
use super::workers::{WorkerReport, report};
use crate::error::Error;
use crate::store::patience::RESPONSE_TIMEOUT;
use crate::store::reconcile::{TakeBack, Word};
use crate::worker_id::WorkerId;

/// What became of the jobs of a worker that was said to be dead.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The worker, as it was before. `death` tells whether its death was proven.
    pub worker: WorkerReport,
    /// Its tasks.
    pub tasks: Vec<RecoveredTask>,
}

/// What became of the jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveredTask {
    /// The task.
    pub task: String,
    /// The jobs that the worker held, and what became of each: what the task does with a job whose worker died.
    pub resolved: Vec<ResolvedJob>,
}

impl Inspector {
    /// Takes the word of a person that a worker is dead, and resolves its jobs at once, by their tokens: no interval is watched.
    /// `None` if nothing is known of the worker.
    ///
    /// A worker of which this is not true loses its jobs to others while its handlers run; it hears of that with its next heartbeat, and
    /// stops. [`WorkerReport::state`] and [`WorkerReport::death`] of the answer tell what was known of it. Workers on the same host
    /// need no such word: they look for themselves.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the server has lost the options of a task, and what every call may give, see [`Error`].
    ///
    /// # Cancel safety
    /// Some of the jobs may be resolved or not when the future is dropped; it is safe to repeat.
    pub async fn recover_worker(&self, worker: &str) -> Result<Option<RecoveryReport>, Error> {
        let (now, said) = (self.now_ms().await?, self.presence(worker).await?);
        let Some(seen) = said.get("lastSeenAt").and_then(|ms| ms.parse().ok()) else { return Ok(None) };
        let known = report(worker, seen, &said, now);
        let (dead, mut tasks) = ([worker.to_owned()], Vec::new());
        for its in &known.tasks {
            let keys = self.keys(&its.task)?;
            let mut taking = TakeBack::default();
            while !taking.is_done() {
                let step = async |conn: &mut _| taking.step(conn, &keys, "", Word::Of(&self.by), &dead).await;
                if !self.store.shared(RESPONSE_TIMEOUT, step).await? {
                    return Err(super::silent::undeclared());
                }
            }
            let resolved = taking.taken.into_iter().filter_map(ResolvedJob::of).collect();
            tasks.push(RecoveredTask { task: its.task.clone(), resolved });
        }
        if known.death.is_none() {
            let (word, id) = (&*self.by, WorkerId::from_wire(worker));
            let note = |mut conn| {
                let id = id.clone();
                async move { self.store.note_death(&mut conn, id.as_str(), word, "said_so").await }
            };
            self.ask(note).await?;
        }
        Ok(Some(RecoveryReport { worker: known, tasks }))
    }
}
