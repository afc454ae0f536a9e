//! Runs a worker until no job waits, for tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::drain;
use crate::backend::engine::Store;
use crate::backend::overview;
use crate::backend::tables::Tables;
use crate::error::Error;
use crate::job::id::JobId;
use crate::mutex::Mutex;
use crate::runtime::observer::{Observer, RunEnd, RunInfo, RunOutcome};
use crate::worker::builder::Worker;
use crate::worker::stop::StopReason;

/// How long it pauses between two checks for remaining jobs.
const LOOK: Duration = Duration::from_millis(10);

/// What [`Worker::drain`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Runs that returned a value.
    pub completed: u64,
    /// Runs that failed, with no attempt left.
    pub failed: u64,
    /// Runs that failed and were retried.
    pub retried: u64,
    /// Runs that snoozed their job, were rate limited, or could not read its payload.
    pub put_off: u64,
    /// Jobs that were delayed again after they had been brought forward, and are still delayed.
    pub left: Vec<JobId>,
}

/// Counts runs by outcome.
struct Counts(Arc<Mutex<Drained>>);

impl Observer for Counts {
    fn ended(&self, _: &RunInfo<'_>, end: &RunEnd<'_>) {
        let mut drained = self.0.lock();
        match end.outcome {
            RunOutcome::Completed => drained.completed += 1,
            RunOutcome::Failed => drained.failed += 1,
            RunOutcome::Retrying => drained.retried += 1,
            RunOutcome::Snoozed | RunOutcome::RateLimited | RunOutcome::Undecodable => drained.put_off += 1,
            RunOutcome::Interrupted => {}
        }
    }
}

impl Worker {
    /// Runs until no job of its tasks waits, runs or is delayed, and no workflow has steps to do; then stops. For tests (feature
    /// `testing`).
    ///
    /// Delayed jobs and retries are brought forward each time. A job that is snoozed, or whose payload cannot be decoded, is brought
    /// forward once. It is brought forward again when another job has ended, since it may have waited for that job. So a job that is
    /// snoozed every time does not block the test. [`Drained::left`] lists it.
    ///
    /// A rate, and the rest after [`JobError::rate_limited`](crate::JobError::rate_limited), count as over; `max_running` holds. A
    /// handler that is rate limited every time does block the test.
    ///
    /// # Errors
    /// As [`Worker::run_until`], and errors of the calls that check the tasks.
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
        let mut drained = std::mem::take(&mut *drained.lock());
        drained.left = left?;
        match stopped {
            StopReason::Shutdown => Ok(drained),
            other => Err(Error::Unsupported { what: format!("the worker did not stop cleanly: {other}") }),
        }
    }
}

/// Brings delayed jobs forward until the only jobs left were delayed again. Returns these.
async fn until_nothing_waits(
    store: &Store,
    tasks: &[Arc<Tables>],
    drained: &Mutex<Drained>,
) -> Result<Vec<JobId>, Error> {
    let mut seen: HashMap<(usize, String), PutOff> = HashMap::new();
    // Work may move from one task to another during a check. So stop only after two checks in a row found no work, and no run ended
    // between them.
    let mut was_quiet = None;
    let looked = || {
        let drained = drained.lock();
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
        // Check in the order in which work moves through a workflow: outbox of the task, outbox of the workflow, job.
        for keys in &tables {
            busy |= store.call(async |conn| drain::is_moving(conn, keys).await).await?;
        }
        for (name, _) in store.call(async |conn| store.workflows(conn).await).await? {
            let keys = store.workflow(&name);
            busy |= store.call(async |conn| drain::is_moving(conn, &keys).await).await?;
        }
        for (index, keys) in tables.iter().enumerate() {
            let counted = store.call(async |conn| overview::counts(conn, keys).await).await?;
            let [waiting, delayed, claimed, running, finalizing, ..] = counted.jobs;
            busy |= waiting + claimed + running + finalizing > 0;
            if waiting > 0 {
                store.call(async |conn| drain::end_rest(conn, keys).await).await?;
                store.call(async |conn| drain::end_rests_of_keys(conn, keys).await).await?;
            }
            if finalizing > 0 {
                store.call(async |conn| drain::bring_hooks_forward(conn, keys).await).await?;
            }
            if delayed == 0 {
                continue;
            }
            let ids = store.call(async |conn| drain::delayed(conn, keys).await).await?;
            // A delayed job that is missing from the list has started meanwhile.
            busy |= (ids.len() as u64) < delayed;
            for (id, snoozes) in ids {
                let put_off = seen.entry((index, id.clone())).or_default();
                if put_off.may_come_forward(snoozes, ended) {
                    busy = true;
                    store.call(async |conn| drain::bring_forward(conn, keys, &id).await).await?;
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
    /// The column `snoozes` when the job was last brought forward.
    snoozes: String,
    /// How many runs had ended their job by then.
    ended: Option<u64>,
}

impl PutOff {
    fn may_come_forward(&mut self, snoozes: String, ended: u64) -> bool {
        // Always bring retries and plain delays forward, since they end by themselves.
        if snoozes == self.snoozes {
            return true;
        }
        // It may have waited for a job that ended since.
        let may = self.ended.is_none_or(|before| before < ended);
        if may {
            (self.snoozes, self.ended) = (snoozes, Some(ended));
        }
        may
    }
}
