//! Working until nothing waits, for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::job::id::JobId;
use crate::process::observer::{Observer, RunEnd, RunInfo, RunOutcome};
use crate::store::engine::Store;
use crate::store::patience::RESPONSE_TIMEOUT;
use crate::store::tables::Tables;
use crate::store::{counts, drain};
use crate::worker::builder::Worker;
use crate::worker::stop::StopReason;

/// How often it looks whether something is left.
const LOOK: Duration = Duration::from_millis(10);

/// What [`Worker::drain`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Runs that returned a value.
    pub completed: u64,
    /// Runs that failed for good.
    pub failed: u64,
    /// Runs that failed and were followed by another.
    pub retried: u64,
    /// Runs that put their job off, or could not read its payload.
    pub put_off: u64,
    /// Jobs that were put off again after they had been brought forward once, and are still delayed.
    pub left: Vec<JobId>,
}

/// Counts the runs.
struct Counts(Arc<Mutex<Drained>>);

impl Observer for Counts {
    fn ended(&self, _: &RunInfo<'_>, end: &RunEnd<'_>) {
        let mut drained = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match end.outcome {
            RunOutcome::Completed => drained.completed += 1,
            RunOutcome::Failed => drained.failed += 1,
            RunOutcome::Retrying => drained.retried += 1,
            RunOutcome::Snoozed | RunOutcome::Undecodable => drained.put_off += 1,
            RunOutcome::Interrupted => {}
        }
    }
}

impl Worker {
    /// Works until no job of its tasks waits, runs, or is delayed, and nothing is to be done for a workflow; then stops. For tests (feature `testing`).
    ///
    /// Delayed jobs and retries are brought forward, as often as they come; a job that is put off (snoozed, or with a payload
    /// that cannot be read) once, and again each time that another job has ended, for which it may have waited. So one that is
    /// put off for ever is no reason to wait for ever: it is then among [`Drained::left`].
    ///
    /// # Errors
    /// As [`Worker::run_until`], and what keeps it from looking at the tasks.
    pub async fn drain(self) -> Result<Drained, Error> {
        let drained = Arc::new(Mutex::new(Drained::default()));
        let worker = self.observe(Counts(Arc::clone(&drained)));
        let store = Arc::clone(&worker.store);
        let tasks: Vec<Arc<Tables>> = worker.tasks.iter().map(|task| store.tables(&task.name)).collect();
        let mut left = Ok(Vec::new());
        let stopped = worker
            .run_until(async {
                left = until_nothing_waits(&store, &tasks, &drained).await;
            })
            .await?;
        let mut drained = std::mem::take(&mut *drained.lock().unwrap_or_else(PoisonError::into_inner));
        drained.left = left?;
        match stopped {
            StopReason::Shutdown => Ok(drained),
            other => Err(Error::Unsupported { what: format!("the worker did not stop well: {other}") }),
        }
    }
}

/// Brings forward what is delayed until nothing is left but what was put off again. Returns that.
async fn until_nothing_waits(
    store: &Store,
    tasks: &[Arc<Tables>],
    drained: &Mutex<Drained>,
) -> Result<Vec<JobId>, Error> {
    let mut seen: HashMap<(usize, String), PutOff> = HashMap::new();
    // A job may go from one task to another between two questions: only two quiet looks in a row are quiet, in which no run ended.
    let mut was_quiet = None;
    let looked = || {
        let drained = drained.lock().unwrap_or_else(PoisonError::into_inner);
        (drained.completed, drained.failed, drained.retried)
    };
    loop {
        let (mut busy, mut left, before) = (false, Vec::new(), looked());
        let (completed, failed, _) = before;
        let ended = completed + failed;
        let mut tables = Vec::with_capacity(tasks.len());
        for task in tasks {
            tables.extend(task.asked(store).await?.iter().cloned());
        }
        // In the order in which an end moves a workflow: from the outbox of the task into that of the workflow, and from there to a job.
        for keys in &tables {
            busy |= store.shared(RESPONSE_TIMEOUT, async |conn| drain::is_moving(conn, keys).await).await?;
        }
        for (name, _) in store.shared(RESPONSE_TIMEOUT, async |conn| store.workflows(conn).await).await? {
            let keys = store.workflow(&name);
            busy |= store.shared(RESPONSE_TIMEOUT, async |conn| drain::is_moving(conn, &keys).await).await?;
        }
        for (index, keys) in tables.iter().enumerate() {
            let counted = store.shared(RESPONSE_TIMEOUT, async |conn| counts::counts(conn, keys).await).await?;
            let [waiting, delayed, claimed, running, finalizing, ..] = counted.jobs;
            busy |= waiting + claimed + running + finalizing > 0;
            if finalizing > 0 {
                store.shared(RESPONSE_TIMEOUT, async |conn| drain::bring_hooks_forward(conn, keys).await).await?;
            }
            if delayed == 0 {
                continue;
            }
            let ids = store.shared(RESPONSE_TIMEOUT, async |conn| drain::delayed(conn, keys).await).await?;
            // One that has gone meanwhile runs.
            busy |= (ids.len() as u64) < delayed;
            for (id, deferred) in ids {
                let put_off = seen.entry((index, id.clone())).or_default();
                if put_off.may_come_forward(deferred, ended) {
                    busy = true;
                    store.shared(RESPONSE_TIMEOUT, async |conn| drain::bring_forward(conn, keys, &id).await).await?;
                } else {
                    left.push(JobId::from_wire(id));
                }
            }
        }
        if !busy && was_quiet == Some(looked()) {
            return Ok(left);
        }
        was_quiet = (!busy).then_some(before);
        tokio::time::sleep(LOOK).await;
    }
}

/// What is known of a job that was delayed.
#[derive(Default)]
struct PutOff {
    /// The column `deferred` when it was brought forward last.
    deferred: String,
    /// How many runs had ended their job by then.
    ended: Option<u64>,
}

impl PutOff {
    fn may_come_forward(&mut self, deferred: String, ended: u64) -> bool {
        // A retry, or a delay: these come to an end by themselves.
        if deferred == self.deferred {
            return true;
        }
        // It may have waited for what has ended since.
        let may = self.ended.is_none_or(|before| before < ended);
        if may {
            (self.deferred, self.ended) = (deferred, Some(ended));
        }
        may
    }
}
