//! A person's word that a worker is dead: its jobs are resolved at once.

use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::silent::ResolvedJob;
use super::workers::WorkerReport;
use crate::error::Error;
use crate::process::death::DeathProof;
use crate::shown::Shown;
use crate::store::patience::RESPONSE_TIMEOUT;
use crate::store::server::check_rights;
use crate::store::sweep::{StalledJob, TakeBack, Word};
use crate::worker_id::WorkerId;

/// What became of the jobs of a worker that was said to be dead.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The worker, as it was before. `death` tells whether its death was proven.
    pub worker: WorkerReport,
    /// Its tasks.
    pub tasks: Vec<RecoveredTask>,
    /// It had told of itself since the time that was given, see [`Inspector::recover_worker_unseen_since`]: nothing was done.
    pub was_seen_since: bool,
}

/// What became of the jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveredTask {
    /// The task.
    pub task: String,
    /// The jobs that the worker held, and what became of each: what the task does with a job whose worker died.
    pub resolved: Vec<ResolvedJob>,
    /// Why others may be left, if so; it is safe to repeat.
    pub fault: Option<String>,
}

impl Inspector {
    /// Takes the word of a person that a worker is dead, and resolves its jobs at once, by their tokens: no interval is watched.
    /// `None` if nothing is known of the worker.
    ///
    /// A worker of which this is not true loses its jobs to others while its handlers run; it hears of that within 10 s, and
    /// stops. [`WorkerReport::state`] and [`WorkerReport::death`] of the answer tell what was known of it. Workers on the same host
    /// need no such word: they look for themselves.
    ///
    /// # Errors
    /// Those of every call, see [`Error`], before anything was done. What goes wrong with a task is its
    /// [`fault`](RecoveredTask::fault).
    ///
    /// # Cancel safety
    /// Some of the jobs may be resolved or not when the future is dropped; it is safe to repeat.
    pub async fn recover_worker(&self, worker: &str) -> Result<Option<RecoveryReport>, Error> {
        self.recover_worker_if(worker, |_| true).await
    }

    /// The same, unless the worker has told of itself behind this time, which is the [`last_seen_at`](WorkerReport::last_seen_at) of when somebody
    /// looked at it and decided: it came back meanwhile. The answer then says [`was_seen_since`](RecoveryReport::was_seen_since).
    ///
    /// # Errors
    /// As [`recover_worker`](Inspector::recover_worker).
    ///
    /// # Cancel safety
    /// As [`recover_worker`](Inspector::recover_worker).
    pub async fn recover_worker_unseen_since(
        &self,
        worker: &str,
        since: SystemTime,
    ) -> Result<Option<RecoveryReport>, Error> {
        self.recover_worker_if(worker, |known| known.last_seen_at <= since).await
    }

    async fn recover_worker_if(
        &self,
        worker: &str,
        is_to_be: impl FnOnce(&WorkerReport) -> bool,
    ) -> Result<Option<RecoveryReport>, Error> {
        let Some(known) = self.worker(worker).await? else { return Ok(None) };
        if !is_to_be(&known) {
            return Ok(Some(RecoveryReport { worker: known, tasks: Vec::new(), was_seen_since: true }));
        }
        let (dead, mut tasks) = ([worker.to_owned()], Vec::new());
        for task in known.tasks.iter().map(|its| its.task.clone()) {
            let mut taken = Vec::new();
            let fault = self.take_jobs(&task, &dead, &mut taken).await.err();
            let resolved = taken.into_iter().filter_map(ResolvedJob::of).collect();
            let fault = fault.map(|e| e.chain().to_string());
            tasks.push(RecoveredTask { task, resolved, fault });
        }
        if known.death.is_none() {
            let (word, id) = (&*self.by, WorkerId::from_wire(worker));
            let note = |mut conn| {
                let id = id.clone();
                async move { self.store.note_death(&mut conn, id.as_str(), word, DeathProof::SaidSo.as_str()).await }
            };
            // It is for people, and what was done is to be told.
            if let Err(e) = self.ask(note).await {
                tracing::debug!(worker = %Shown(worker), error = %e.chain(), "the death of a worker could not be noted");
            }
        }
        Ok(Some(RecoveryReport { worker: known, tasks, was_seen_since: false }))
    }

    async fn take_jobs(&self, task: &str, dead: &[String], taken: &mut Vec<StalledJob>) -> Result<(), Error> {
        for keys in self.tables(task).await?.iter() {
            let before = taken.len();
            self.ask(|mut conn| async move { check_rights(&mut conn, keys).await }).await?;
            let mut its = TakeBack::default();
            while !its.is_done() {
                let step = async |conn: &mut _| its.step(conn, keys, "", Word::Of(&self.by), dead).await;
                let stepped = self.store.shared(RESPONSE_TIMEOUT, step).await;
                // What was taken is told, whatever came behind it.
                taken.append(&mut its.taken);
                if !stepped? {
                    return Err(super::silent::undeclared());
                }
            }
            if taken[before..].iter().any(StalledJob::ends_a_node) {
                self.move_workflows(keys).await;
            }
        }
        Ok(())
    }
}
