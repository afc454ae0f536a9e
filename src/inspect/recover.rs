//! A person declares a worker dead, and its jobs are resolved at once.

use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::silent::ResolvedJob;
use super::workers::WorkerReport;
use crate::backend::server::check_rights;
use crate::backend::sweep::{StalledJob, TakeBack, TakeReason};
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::error::Error;
use crate::escape::Escaped;
use crate::runtime::death_proof::DeathProof;
use crate::worker_id::WorkerId;

/// The decisions about the jobs of a worker that a person declared dead.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The worker, as it was before. `death` is set if its death was already known.
    pub worker: WorkerReport,
    /// Its tasks.
    pub tasks: Vec<RecoveredTask>,
    /// Whether nothing was done because the worker was seen again, see [`Inspector::recover_worker_unseen_since`].
    pub was_seen_since: bool,
}

/// The decisions about the jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveredTask {
    /// The task.
    pub task: String,
    /// The jobs that the worker held, and the decision about each, by the options of the task.
    pub resolved: Vec<ResolvedJob>,
    /// Why some jobs may be unresolved, if so. It is safe to repeat the call.
    pub fault: Option<String>,
}

impl Inspector {
    /// Declares a worker dead and resolves its jobs at once, without watching an interval. `None` if the worker is unknown.
    ///
    /// If the worker is alive, it loses its jobs to others while its handlers run. It learns of this within 10 s and stops. Check
    /// [`WorkerReport::state`] and [`WorkerReport::death`] of the answer. The call is not needed if another worker runs on the same
    /// host: that worker proves the death.
    ///
    /// # Errors
    /// Only before anything was done. A later failure for one task is its [`fault`](RecoveredTask::fault).
    pub async fn recover_worker(&self, worker: &str) -> Result<Option<RecoveryReport>, Error> {
        self.recover_worker_if(worker, |_| true).await
    }

    /// [`recover_worker`](Inspector::recover_worker), unless the worker came back meanwhile. `since` is the
    /// [`last_seen_at`](WorkerReport::last_seen_at) that the person saw. If the worker was seen later, nothing is done and the answer
    /// has [`was_seen_since`](RecoveryReport::was_seen_since).
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
            let proof = DeathProof::SaidSo.as_str();
            let note = async |conn: &mut _| self.store.note_death(conn, id.as_str(), word, proof).await;
            // The note is only for people, so report what was done even if it fails.
            if let Err(e) = self.ask(note).await {
                tracing::debug!(worker = %Escaped(worker), error = %e.chain(), "the death of a worker could not be noted");
            }
        }
        Ok(Some(RecoveryReport { worker: known, tasks, was_seen_since: false }))
    }

    async fn take_jobs(&self, task: &str, dead: &[String], taken: &mut Vec<StalledJob>) -> Result<(), Error> {
        for keys in self.tables(task).await?.iter() {
            let before = taken.len();
            self.ask(async |conn| check_rights(conn, keys).await).await?;
            let mut its = TakeBack::default();
            while !its.is_done() {
                let step = async |conn: &mut _| its.step(conn, keys, "", TakeReason::Person(&self.by), dead).await;
                let stepped = self.store.shared(RESPONSE_TIMEOUT, step).await;
                // Report the jobs that were taken before a failure.
                taken.append(&mut its.taken);
                if !stepped? {
                    return Err(super::sweep_by_hand::undeclared());
                }
            }
            if taken[before..].iter().any(StalledJob::ends_a_node) {
                self.move_workflows(keys).await;
            }
        }
        Ok(())
    }
}
